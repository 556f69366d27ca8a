#include "tier/vm/kvmprobe.h"
#include "base/clock.h"
#include "test.h"
#include <sys/time.h>

TEST(kvmprobe, gives_a_verdict_and_a_reason)
{
    struct kvm_verdict v;
    struct err e;
    unsetenv("HUTCH_ACCEL");
    CHECK_INT(kvm_probe(&v, &e), 0);
    CHECK(v.reason[0]);
    CHECK(!v.forced);
    printf("# %s: %s (%.1f ms)\n", v.usable ? "usable" : "not usable", v.reason,
           (double)v.took_ns / 1e6);
    for (int t = 0; t < KT_MAX; t++)
        printf("# %-26s %s %.2f ms\n", kvm_test_name(t), kvm_result_name(v.test[t].result),
               (double)v.test[t].took_ns / 1e6);
    for (int t = 0; t < KT_MAX; t++)
        CHECK(!v.usable || v.test[t].result == KR_OK);
    CHECK(v.took_ns < 1100 * NS_PER_MS);
}

TEST(kvmprobe, rejects_a_software_shim_quickly)
{
    if (!access("/sys/module/kvm_intel", F_OK) || !access("/sys/module/kvm_amd", F_OK))
        SKIP("this machine may have hardware KVM");
    struct kvm_verdict v;
    struct err e;
    int64_t best = INT64_MAX;
    unsetenv("HUTCH_ACCEL");
    for (int i = 0; i < 3; i++) {
        CHECK_INT(kvm_probe(&v, &e), 0);
        CHECK(!v.usable);
        best = v.took_ns < best ? v.took_ns : best;
    }
    CHECK(best < 100 * NS_PER_MS);
}

TEST(kvmprobe, leaves_no_timer_and_no_child)
{
    struct kvm_verdict v;
    unsetenv("HUTCH_ACCEL");
    kvm_probe_here(&v);
    struct itimerval it;
    CHECK(!getitimer(ITIMER_REAL, &it) && !it.it_value.tv_sec && !it.it_value.tv_usec);
    struct err e;
    CHECK_INT(kvm_probe(&v, &e), 0);
    CHECK(waitpid(-1, NULL, WNOHANG) < 0);
}

TEST(kvmprobe, obeys_the_operator)
{
    struct kvm_verdict v;
    struct err e;
    setenv("HUTCH_ACCEL", "tcg", 1);
    CHECK_INT(kvm_probe(&v, &e), 0);
    CHECK(!v.usable && v.forced);
    setenv("HUTCH_ACCEL", "kvm", 1);
    int rc = kvm_probe(&v, &e);
    CHECK_INT(rc, access("/dev/kvm", R_OK | W_OK) ? -1 : 0);
    CHECK(rc || (v.usable && v.forced));
    setenv("HUTCH_ACCEL", "fast", 1);
    CHECK_INT(kvm_probe(&v, &e), -1);
    CHECK_INT(e.code, E_INVALID);
}

TEST(tsc, two_measurements_agree)
{
    uint32_t a = tsc_khz_measure(), b = tsc_khz_measure();
    if (!a || !b)
        SKIP("no time stamp counter");
    CHECK(a > 100000);
    uint32_t diff = a > b ? a - b : b - a;
    CHECK((uint64_t)diff * 1000000 < (uint64_t)a * 200); /* the tolerance of a variant's manifest */
}
TEST_MAIN
