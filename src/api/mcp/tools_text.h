#pragma once
extern const char mcp_tools_begin[] __attribute__((visibility("hidden")));
extern const char mcp_tools_end[] __attribute__((visibility("hidden")));
