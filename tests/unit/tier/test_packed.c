/* What a pack says of its machine, against what this host is. */
#include "tier/vm/vm_int.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "json/write.h"
#include "test.h"

#define TID "taaaaaaaaaaaaaaaaaaaa"

static const struct vm_identity ident = {.accel = SP_ACCEL_TCG,
                                         .tsc_khz = 2300000,
                                         .cpu = "max",
                                         .qemu = "q",
                                         .kernel = "6.1",
                                         .kernel_sums = "s",
                                         .agent = "a"};
static const struct vm_spec spec = {.template_id = TID, .ram_mib = 64, .vcpus = 1, .disk_mib = 512};
static struct vm_machine machine = {
    .spec = {.template_id = TID, .ram_mib = 64, .vcpus = 1, .disk_mib = 512},
    .key = "0123456789abcdef0123456789abcdef"};

/* Does a pack that was made on `maker` fit this host? */
static int fit(const struct vm_identity *maker, bool memory, struct err *e)
{
    struct manifest m = {.base_bytes = 1};
    struct vm_host host = {.ident = ident};
    struct buf variant = {0}, text = {0};
    struct jw w;
    memset(machine.ram_sha256, 'a', 64), memset(machine.disk_sha256, 'b', 64);
    memset(m.ram.sha256, 'a', 64), memset(m.disk.sha256, 'b', 64), memset(m.state.sha256, 'c', 64);
    varmanifest_write(&variant, &spec, maker, machine.key, &m);
    jw_init(&w, &text);
    jw_obj(&w);
    jw_kv_bool(&w, "memory", memory);
    jw_kv_obj(&w, "machine");
    machine_put(&w, &machine);
    jw_end(&w);
    jw_end(&w);
    auto_free char *of_variant = buf_take(&variant), *of_machine = buf_take(&text);
    struct vm_unpack *u = vm_unpack_new(&host);
    int rc = vm_unpack_fit(u, &spec, memory, of_variant, &of_machine, 1, e);
    vm_unpack_free(u);
    return rc;
}

static void refused(struct vm_identity maker, bool memory, const char *what)
{
    struct err e = {0};
    CHECK_INT(fit(&maker, memory, &e), -1);
    CHECK_INT(e.code, E_CONFLICT);
    CHECK(strstr(e.msg, what));
}

TEST(packed, what_differs_is_named)
{
    struct err e = {0};
    struct vm_identity o;
    CHECK_INT(fit(&ident, true, &e), 0);
    for (int memory = 0; memory < 2; memory++) {
        o = ident, o.accel = SP_ACCEL_KVM;
        refused(o, memory, "another accelerator");
        o = ident, strcpy(o.cpu, "486");
        refused(o, memory, "another processor model");
        o = ident, strcpy(o.qemu, "9.9");
        refused(o, memory, "another QEMU");
        o = ident, o.tsc_khz *= 2;
        refused(o, memory, "tsc_khz");
    }
    o = ident, strcpy(o.kernel, "1.0");
    refused(o, true, "another guest kernel");
    o = ident, strcpy(o.kernel_sums, "t");
    refused(o, true, "another guest kernel");
    o = ident, strcpy(o.agent, "b");
    refused(o, true, "another version of hutch's agent");
}

TEST(packed, files_alone_do_not_care_what_ran)
{
    struct err e = {0};
    struct vm_identity o = ident;
    strcpy(o.kernel, "1.0"), strcpy(o.kernel_sums, "t"), strcpy(o.agent, "b");
    CHECK_INT(fit(&o, false, &e), 0);
}

TEST_MAIN
