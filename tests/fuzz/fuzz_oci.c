/* Image JSON; the first byte chooses the parser. What a config says must
 * survive the line from the importer to the daemon. */
#include "base/buf.h"
#include "image/manifest.h"
#include "image/oci.h"
#include <stdlib.h>
#include <string.h>

static void hex_or_die(const char *s)
{
    if (strlen(s) != 64 || strspn(s, "0123456789abcdef") != 64)
        abort();
}

static void config(const char *p, size_t n)
{
    static struct oci_config c, back;
    auto_buf line = {0}, again = {0};
    struct err e = {0};
    if (oci_config(p, n, &c, &e) < 0)
        return;
    for (size_t i = 0; i < c.ndiff; i++)
        hex_or_die(c.diff_id[i]);
    oci_config_write(&c, &line);
    if (memchr(line.p, '\n', line.n) || line.n > OCI_CONFIG_MAX || oci_config_read(line.p, line.n, &back, &e) < 0)
        abort();
    oci_config_write(&back, &again);
    if (again.n != line.n || memcmp(again.p, line.p, line.n))
        abort();
    oci_config_fini(&c);
    oci_config_fini(&back);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    static struct oci_manifest m;
    static struct oci_config c;
    struct oci_docker d;
    struct oci_desc desc;
    struct manifest t;
    struct err e = {0};
    if (!n)
        return 0;
    const char *p = (const char *)data + 1;
    switch (n--, data[0] % 6) {
    case 0:
        if (oci_index(p, n, &desc, &e) == 0)
            hex_or_die(desc.sha256);
        break;
    case 1:
        if (oci_manifest(p, n, &m, &e) == 0) {
            if (m.nlayers > OCI_LAYERS_MAX)
                abort();
            for (size_t i = 0; i < m.nlayers; i++)
                hex_or_die(m.layer[i].sha256);
        }
        break;
    case 2:
        if (oci_docker(p, n, &d, &e) == 0) {
            for (size_t i = 0; i < d.nlayers; i++)
                if (d.layer[i][0] == '/' || !strncmp(d.layer[i], "../", 3) || strstr(d.layer[i], "/../"))
                    abort();
            oci_docker_fini(&d);
        }
        break;
    case 3:
        config(p, n);
        break;
    case 4:
        if (oci_config_read(p, n, &c, &e) == 0)
            oci_config_fini(&c);
        break;
    default:
        if (manifest_parse(p, n, &t, &e) == 0)
            manifest_fini(&t);
    }
    return 0;
}
