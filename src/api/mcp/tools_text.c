/* tools.json as it lies beside this file: the contract with clients, embedded. */
#include "api/mcp/tools_text.h"

__asm__(".section .rodata\n"
        ".global mcp_tools_text\n.hidden mcp_tools_text\n"
        "mcp_tools_text:\n"
        ".incbin \"src/api/mcp/tools.json\"\n"
        ".byte 0\n"
        ".previous\n");
