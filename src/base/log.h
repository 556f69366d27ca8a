/* Line log to stderr: "2026-01-02T03:04:05.678Z LEVEL message key=value". One
 * write(2) per line. Control bytes in the message are escaped, so nothing that
 * a guest or client sends can forge a line. Not for jailed children. */
#pragma once
enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
void log_init(const char *program, enum log_level level); /* level may be overridden by HUTCH_LOG=error|warn|info|debug */
void log_to(int fd);
void log_msg(enum log_level l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define log_error(...) log_msg(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_msg(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_msg(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_msg(LOG_DEBUG, __VA_ARGS__)
