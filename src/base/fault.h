/* For the fault loop (tests/e2e/test_faults.py) alone: with HUTCH_FAULT set to
 * the path of a file, a process that passes the step named in that file kills
 * itself there, as kill -9 would. Without the variable nothing happens. */
#pragma once
void fault(const char *step);
