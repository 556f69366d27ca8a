/* tools.json as it lies beside this file: the contract with clients, embedded. */
#include "api/mcp/tools_text.h"

__asm__(".section .rodata\n"
        ".global mcp_tools_begin\n.hidden mcp_tools_begin\n"
        ".global mcp_tools_end\n.hidden mcp_tools_end\n"
        "mcp_tools_begin:\n"
        ".incbin \"src/api/mcp/tools.json\"\n"
        "mcp_tools_end:\n"
        ".byte 0\n"
        ".previous\n");
