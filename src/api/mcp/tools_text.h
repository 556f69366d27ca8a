#pragma once
extern const char mcp_tools_text[] __attribute__((visibility("hidden"))); /* NUL-terminated */
