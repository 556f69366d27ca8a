#include "handlers.h"

TEST(router, tells_404_from_405) { check_get("POST /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "405 Method Not Allowed"); }
TEST(router, lists_allowed_methods) { check_get("PUT /who/1/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "Allow: GET, HEAD, DELETE\r\n"); }
TEST(router, misses_unknown_paths) { check_get("GET /nope HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "404 Not Found"); }
TEST(router, keeps_an_encoded_slash_in_its_segment) { check_get("GET /who/a%2Fb/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "a/b|-|tcp"); }
TEST(router, refuses_nul_in_a_path) { check_get("GET /who/a%00b/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "400 Bad Request"); }
TEST(router, refuses_an_empty_capture) { check_get("GET /who//x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "404 Not Found"); }
TEST(router, captures_the_remainder) { check_get("GET /files/a/b%20c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "\r\n\r\na/b c"); }
TEST(router, refuses_dots_in_a_remainder) { check_get("GET /files/a/%2e%2e/b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "400 Bad Request"); }
TEST_MAIN
