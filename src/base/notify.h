/* Telling a service manager, sd_notify(3) without its library. */
#pragma once
void notify_keep(
    void); /* first: takes NOTIFY_SOCKET out of the environment, so that no child has it */
void notify_send(const char *state); /* "READY=1", "STOPPING=1"; nothing without a NOTIFY_SOCKET */
