/* One finding of `hutch doctor`. */
#pragma once
struct doctor_check {
    const char *name, *status /* ok warn fail */;
    char found[160], lost[160], fix[160];
};
