/* Is KVM usable at hardware speed? /dev/kvm may be a software shim that gets
 * kernel-mode instructions wrong or runs them a thousand times too slowly, so
 * the file existing proves nothing. The probe runs seven tiny 64-bit guests
 * and requires the right answer in the right time; it stops at the first that
 * fails. On a machine without usable KVM it takes a few milliseconds.
 *
 * kvm_probe() forks once and kills its child at a deadline: call it at
 * start-up, before the first thread exists. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

enum kvm_test { KT_CMPXCHG16B, KT_XSAVE, KT_INT3, KT_LOOP, KT_CR3, KT_OUT, KT_STOSQ, KT_MAX };
enum kvm_result {
    KR_NOT_RUN,
    KR_OK,
    KR_WRONG /* answer or exit reason */,
    KR_SLOW,
    KR_TIMEOUT,
    KR_REFUSED /* an ioctl failed */
};

struct kvm_verdict {
    bool usable;
    bool forced;      /* HUTCH_ACCEL decided, not a test */
    char reason[160]; /* a sentence for `hutch doctor` */
    int64_t took_ns;  /* the whole probe */
    struct {
        enum kvm_result result;
        int64_t took_ns;
    } test[KT_MAX];
};

/* HUTCH_ACCEL: "kvm" and "tcg" decide (kvm still needs a /dev/kvm that opens), "auto", "" and unset probe. -1: any
 * other value, or kvm was demanded and is not there. */
int kvm_probe(struct kvm_verdict *ret, struct err *e) __attribute__((warn_unused_result));

/* The bare probe in this process: uses SIGALRM and ITIMER_REAL meanwhile, has no overall deadline. */
void kvm_probe_here(struct kvm_verdict *ret);

const char *kvm_test_name(enum kvm_test t);
const char *kvm_result_name(enum kvm_result r);

/* Rate of the time stamp counter against CLOCK_MONOTONIC_RAW, in kHz; sleeps about 50 ms. TCG's guest TSC runs at
 * this rate; a guest told so does not calibrate (and does not hang while calibrating). 0: no TSC. */
uint32_t tsc_khz_measure(void);
