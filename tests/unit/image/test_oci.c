/* Image archives built by the test itself: both layouts, platform choice,
 * whiteouts across layers, and everything that does not add up. */
#include "base/cleanup.h"
#include "crypto/digest.h"
#include "image/import.h"
#include "image/oci.h"
#include "unit/image/tarmake.h"

#define MT_MANIFEST "application/vnd.oci.image.manifest.v1+json"
#define MT_INDEX    "application/vnd.oci.image.index.v1+json"
#define MT_CONFIG   "application/vnd.oci.image.config.v1+json"
#define MT_LAYER    "application/vnd.oci.image.layer.v1.tar"
#define HEX64       "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* ---- pure parts ------------------------------------------------------------------------------------------------- */

static void index_is(const char *text, enum err_code want, const char *hint)
{
    struct oci_desc d;
    struct err e = {0};
    int rc = oci_index(text, strlen(text), &d, &e);
    if (rc == 0 ? want != E_OK : e.code != want || !strstr(e.msg, hint)) {
        printf("# %s -> %s %s\n", text, err_name(e.code), e.msg);
        CHECK(0);
    }
}
#define DESC(mt, extra) "{\"mediaType\":\"" mt "\",\"digest\":\"sha256:" HEX64 "\",\"size\":7" extra "}"
#define PLATFORM(os, arch) ",\"platform\":{\"os\":\"" os "\",\"architecture\":\"" arch "\"}"
#define OTHER "{\"mediaType\":\"" MT_MANIFEST "\",\"digest\":\"sha256:ff23456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\",\"size\":7"

TEST(oci, chooses_the_platform)
{
    struct oci_desc d;
    struct err e = {0};
    const char *both = "{\"manifests\":[" OTHER PLATFORM("linux", "arm64") "}," DESC(MT_MANIFEST, PLATFORM("linux", "amd64")) "," OTHER PLATFORM("unknown", "unknown") "}]}";
    CHECK_INT(oci_index(both, strlen(both), &d, &e), 0);
    CHECK_STR(d.sha256, HEX64);
    CHECK_INT(d.size, 7);
    index_is("{\"manifests\":[" DESC(MT_MANIFEST, "") "]}", E_OK, "");
    index_is("{\"manifests\":[" DESC(MT_MANIFEST, "") "," DESC(MT_MANIFEST, "") "]}", E_OK, ""); /* one image, two names */
    index_is("{\"manifests\":[" DESC(MT_MANIFEST, "") "," OTHER "}]}", E_INVALID, "2 images");
    index_is("{\"manifests\":[" DESC(MT_MANIFEST, PLATFORM("linux", "arm64")) "]}", E_UNSUPPORTED, "linux/amd64");
    index_is("{\"manifests\":[]}", E_UNSUPPORTED, "linux/amd64");
}

TEST(oci, refuses_bad_indexes)
{
    index_is("", E_INVALID, "index.json");
    index_is("[]", E_INVALID, "not an object");
    index_is("{}", E_INVALID, "manifests");
    index_is("{\"manifests\":[1]}", E_INVALID, "descriptor");
    index_is("{\"manifests\":[{\"mediaType\":\"x\",\"digest\":\"sha512:00\",\"size\":1}]}", E_INVALID, "sha256");
    index_is("{\"manifests\":[{\"mediaType\":\"x\",\"digest\":\"sha256:../../etc/passwd\",\"size\":1}]}", E_INVALID, "sha256");
    index_is("{\"manifests\":[{\"mediaType\":\"x\",\"digest\":\"sha256:" HEX64 "\",\"size\":-1}]}", E_INVALID, "size");
    index_is("{\"manifests\":[{\"mediaType\":\"x\",\"digest\":\"sha256:" HEX64 "\",\"size\":1e30}]}", E_INVALID, "size");
    index_is("{\"manifests\":[{\"mediaType\":\"x\",\"digest\":\"sha256:" HEX64 "\"}]}", E_INVALID, "size");
    index_is("{\"manifests\":[],\"manifests\":[]}", E_INVALID, "index.json");
    auto_buf big = {0};
    buf_puts(&big, "{\"a\":\"");
    while (big.n <= OCI_JSON_MAX)
        buf_puts(&big, "0123456789abcdef0123456789abcdef");
    buf_puts(&big, "\"}");
    index_is(big.p, E_TOO_LARGE, "larger");
    big.n = 0;
    buf_puts(&big, "{\"manifests\":[" DESC(MT_MANIFEST, ""));
    for (int i = 0; i < OCI_INDEX_MAX; i++)
        buf_puts(&big, "," DESC(MT_MANIFEST, ""));
    buf_puts(&big, "]}");
    index_is(big.p, E_TOO_LARGE, "more than");
}

TEST(oci, bounds_the_layers)
{
    auto_buf t = {0};
    struct err e = {0};
    auto_free struct oci_manifest *m = xcalloc(1, sizeof *m);
    for (int n = OCI_LAYERS_MAX; n <= OCI_LAYERS_MAX + 1; n++) {
        t.n = 0;
        buf_puts(&t, "{\"schemaVersion\":2,\"config\":" DESC(MT_CONFIG, "") ",\"layers\":[");
        for (int i = 0; i < n; i++)
            buf_printf(&t, "%s%s", i ? "," : "", DESC(MT_LAYER, ""));
        buf_puts(&t, "]}");
        CHECK_INT(oci_manifest(t.p, t.n, m, &e), n == OCI_LAYERS_MAX ? 0 : -1);
    }
    CHECK_INT(e.code, E_TOO_LARGE);
    const char *artifact = "{\"config\":" DESC("application/vnd.oci.empty.v1+json", "") ",\"layers\":[]}";
    CHECK_INT(oci_manifest(artifact, strlen(artifact), m, &e), -1);
    CHECK_INT(e.code, E_UNSUPPORTED);
    const char *foreign = "{\"config\":" DESC(MT_CONFIG, "") ",\"layers\":[" DESC("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", "") "]}";
    CHECK_INT(oci_manifest(foreign, strlen(foreign), m, &e), -1);
    CHECK(e.code == E_UNSUPPORTED && strstr(e.msg, "layer 1"));
    const char *v1 = "{\"schemaVersion\":1,\"config\":" DESC(MT_CONFIG, "") ",\"layers\":[]}";
    CHECK_INT(oci_manifest(v1, strlen(v1), m, &e), -1);
}

TEST(oci, reads_docker_manifests)
{
    struct oci_docker d;
    struct err e = {0};
    const char *good = "[{\"Config\":\"c.json\",\"RepoTags\":null,\"Layers\":[\"a/layer.tar\",\"./b//layer.tar\"]}]";
    CHECK_INT(oci_docker(good, strlen(good), &d, &e), 0);
    CHECK_STR(d.config, "c.json");
    CHECK_INT(d.nlayers, 2);
    CHECK_STR(d.layer[1], "b/layer.tar");
    oci_docker_fini(&d);
    static const char *const bad[] = {"{}", "[]", "[1]", "[{}]", "[{\"Layers\":[]}]", "[{\"Config\":\"../x\",\"Layers\":[]}]", "[{\"Config\":\"/etc/x\",\"Layers\":[]}]",
                                      "[{\"Config\":\"c\",\"Layers\":[\"a\",\"../b\"]}]", "[{\"Config\":\"\",\"Layers\":[]}]", "[{\"Config\":\"c\",\"Layers\":[1]}]",
                                      "[{\"Config\":\"c\",\"Layers\":[]},{\"Config\":\"c\",\"Layers\":[]}]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_INT(oci_docker(bad[i], strlen(bad[i]), &d, &e), -1);
    CHECK(strstr(e.msg, "2 images"));
}

#define CONFIG(run, ids) "{\"os\":\"linux\",\"architecture\":\"amd64\",\"config\":{" run "},\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[" ids "]}}"

TEST(oci, config_crosses_as_one_line)
{
    auto_free struct oci_config *c = xcalloc(1, sizeof *c), *back = xcalloc(1, sizeof *back);
    struct err e = {0};
    auto_buf line = {0};
    const char *text = CONFIG("\"Env\":[\"PATH=/bin\",\"A=line\\nbreak \\\"q\\\"\"],\"WorkingDir\":\"/app\",\"User\":\"1000:1000\",\"Entrypoint\":[\"/x\"],\"Cmd\":null",
                              "\"sha256:" HEX64 "\"");
    CHECK_INT(oci_config(text, strlen(text), c, &e), 0);
    CHECK_INT(c->ndiff, 1);
    oci_config_write(c, &line);
    CHECK(!strchr(line.p, '\n'));
    CHECK_INT(oci_config_read(line.p, line.n, back, &e), 0);
    CHECK_INT(back->env.n, 2);
    CHECK_STR(back->env.v[1], "A=line\nbreak \"q\"");
    CHECK_STR(back->workdir, "/app");
    CHECK_STR(back->user, "1000:1000");
    CHECK_INT(back->entrypoint.n, 1);
    CHECK_INT(back->cmd.n, 0);
    oci_config_fini(c), oci_config_fini(back);
    CHECK_INT(oci_config_read("{\"evil\":1}", 10, back, &e), -1);
    CHECK_INT(oci_config_read("{\"env\":[1]}", 11, back, &e), -1);
    CHECK_INT(oci_config_read("{\"workdir\":\"rel\"}", 17, back, &e), -1);
}

TEST(oci, refuses_bad_configs)
{
    static const char *const bad[] = {
        "{}",
        "{\"os\":\"windows\",\"architecture\":\"amd64\",\"rootfs\":{\"diff_ids\":[]}}",
        "{\"os\":\"linux\",\"architecture\":\"arm64\",\"rootfs\":{\"diff_ids\":[]}}",
        CONFIG("\"Env\":[\"NOEQUALS\"]", ""),
        CONFIG("\"Env\":[\"=x\"]", ""),
        CONFIG("\"Env\":[\"A B=x\"]", ""),
        CONFIG("\"Env\":\"A=x\"", ""),
        CONFIG("\"Env\":[\"A=\\u0000\"]", ""),
        CONFIG("\"WorkingDir\":\"relative\"", ""),
        CONFIG("\"User\":7", ""),
        CONFIG("", "\"md5:00\""),
        CONFIG("", "7"),
    };
    auto_free struct oci_config *c = xcalloc(1, sizeof *c);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err e = {0};
        CHECK_INT(oci_config(bad[i], strlen(bad[i]), c, &e), -1);
        CHECK(e.code == E_INVALID || e.code == E_UNSUPPORTED);
    }
}

/* ---- whole archives --------------------------------------------------------------------------------------------- */

/* An image in the making: layers as tar bytes, then one of the two layouts. */
struct image { struct buf layer[3]; size_t n; struct buf out; const char *run; };

static void image_layers(struct image *im)
{
    im->n = 2;
    tar_add(&im->layer[0], (struct member){.name = "etc/", .type = '5'});
    tar_add(&im->layer[0], (struct member){.name = "etc/os", .data = "one"});
    tar_add(&im->layer[0], (struct member){.name = "old", .data = "old"});
    tar_end(&im->layer[0]);
    tar_add(&im->layer[1], (struct member){.name = "etc/os", .data = "two"});
    tar_add(&im->layer[1], (struct member){.name = ".wh.old"});
    tar_end(&im->layer[1]);
    im->run = "\"Env\":[\"A=1\"],\"WorkingDir\":\"/etc\",\"Cmd\":[\"sh\"]";
}

static void image_config(struct image *im, struct buf *out)
{
    char hex[SHA256_HEX];
    buf_printf(out, "{\"os\":\"linux\",\"architecture\":\"amd64\",\"config\":{%s},\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[", im->run);
    for (size_t i = 0; i < im->n; i++) {
        sha256_hex(im->layer[i].p, im->layer[i].n, hex);
        buf_printf(out, "%s\"sha256:%s\"", i ? "," : "", hex);
    }
    buf_puts(out, "]}}");
}

static void put_blob(struct buf *tar, const char *bytes, size_t n, char hex[SHA256_HEX])
{
    char name[100];
    sha256_hex(bytes, n, hex);
    (void)snprintf(name, sizeof name, "blobs/sha256/%s", hex);
    tar_add(tar, (struct member){.name = name, .data = bytes, .ndata = n});
}

static void image_oci(struct image *im, bool nested)
{
    char hex[SHA256_HEX];
    auto_buf config = {0}, manifest = {0}, index = {0};
    image_config(im, &config);
    put_blob(&im->out, config.p, config.n, hex);
    buf_printf(&manifest, "{\"schemaVersion\":2,\"config\":{\"mediaType\":\"" MT_CONFIG "\",\"digest\":\"sha256:%s\",\"size\":%zu},\"layers\":[", hex, config.n);
    for (size_t i = 0; i < im->n; i++) {
        put_blob(&im->out, im->layer[i].p, im->layer[i].n, hex);
        buf_printf(&manifest, "%s{\"mediaType\":\"" MT_LAYER "\",\"digest\":\"sha256:%s\",\"size\":%zu}", i ? "," : "", hex, im->layer[i].n);
    }
    buf_puts(&manifest, "]}");
    put_blob(&im->out, manifest.p, manifest.n, hex);
    buf_printf(&index, "{\"schemaVersion\":2,\"manifests\":[{\"mediaType\":\"" MT_MANIFEST "\",\"digest\":\"sha256:%s\",\"size\":%zu}]}", hex, manifest.n);
    if (nested) {
        auto_buf inner = {index.p, index.n, index.cap};
        index = (struct buf){0};
        put_blob(&im->out, inner.p, inner.n, hex);
        buf_printf(&index, "{\"schemaVersion\":2,\"manifests\":[{\"mediaType\":\"" MT_INDEX "\",\"digest\":\"sha256:%s\",\"size\":%zu}]}", hex, inner.n);
    }
    tar_add(&im->out, (struct member){.name = "index.json", .data = index.p});
    tar_add(&im->out, (struct member){.name = "oci-layout", .data = "{\"imageLayoutVersion\":\"1.0.0\"}"});
    tar_end(&im->out);
}

static void image_docker(struct image *im)
{
    char hex[SHA256_HEX], name[100];
    auto_buf config = {0}, manifest = {0};
    image_config(im, &config);
    sha256_hex(config.p, config.n, hex);
    (void)snprintf(name, sizeof name, "%s.json", hex);
    tar_add(&im->out, (struct member){.name = name, .data = config.p, .ndata = config.n});
    tar_add(&im->out, (struct member){.name = "a/layer.tar", .data = im->layer[0].p, .ndata = im->layer[0].n});
    tar_add(&im->out, (struct member){.name = "c/real.tar", .data = im->layer[1].p, .ndata = im->layer[1].n});
    tar_add(&im->out, (struct member){.name = "b/layer.tar", .type = '2', .link = "../c/real.tar"});
    buf_printf(&manifest, "[{\"Config\":\"%s\",\"RepoTags\":[\"x:1\"],\"Layers\":[\"a/layer.tar\",\"b/layer.tar\"]}]", name);
    tar_add(&im->out, (struct member){.name = "manifest.json", .data = manifest.p});
    tar_end(&im->out);
}

static void image_free(struct image *im)
{
    for (int i = 0; i < 3; i++)
        buf_free(&im->layer[i]);
    buf_free(&im->out);
}

static int import(struct place *p, struct buf *b, struct oci_config *c, struct err *e)
{
    struct untar u;
    int fd = tar_file(b);
    untar_init(&u, p->root);
    u.max_bytes = 1 << 20, u.max_files = 1000, u.no_owner = geteuid() != 0;
    int rc = import_image(&u, fd, c, e);
    untar_fini(&u);
    close(fd);
    place_check(p);
    return rc;
}

static void arrives(struct image *im)
{
    struct place p = place_new();
    auto_free struct oci_config *c = xcalloc(1, sizeof *c);
    struct err e = {0};
    char text[256];
    if (import(&p, &im->out, c, &e) < 0) {
        printf("# %s\n", e.msg);
        CHECK(0);
    }
    CHECK_STR(place_read(p.root, "etc/os", text), "two");
    CHECK(!place_read(p.root, "old", text));
    CHECK_STR(c->env.v[0], "A=1");
    CHECK_STR(c->workdir, "/etc");
    oci_config_fini(c);
    place_free(&p);
}

static void refused(struct buf *b, enum err_code want, const char *hint)
{
    struct place p = place_new();
    auto_free struct oci_config *c = xcalloc(1, sizeof *c);
    struct err e = {0};
    CHECK_INT(import(&p, b, c, &e), -1);
    if (e.code != want || !strstr(e.msg, hint)) {
        printf("# got %s: %s\n", err_name(e.code), e.msg);
        CHECK(0);
    }
    place_free(&p);
}

TEST(import, oci_layout)
{
    for (int nested = 0; nested < 2; nested++) {
        struct image im = {0};
        image_layers(&im);
        image_oci(&im, nested);
        arrives(&im);
        image_free(&im);
    }
}

TEST(import, docker_archive_with_linked_layer)
{
    struct image im = {0};
    image_layers(&im);
    image_docker(&im);
    arrives(&im);
    image_free(&im);
}

/* Flipping any byte of a blob's contents must be noticed. */
TEST(import, notices_changed_blobs)
{
    for (int docker = 0; docker < 2; docker++) {
        struct image im = {0};
        image_layers(&im);
        docker ? image_docker(&im) : image_oci(&im, false);
        char *at = memmem(im.out.p, im.out.n, "two", 3);
        CHECK(at);
        *at = 'T';
        refused(&im.out, E_INVALID, "digest");
        *at = 't';
        at = memmem(im.out.p, im.out.n, "A=1", 3);
        CHECK(at);
        *at = 'B';
        refused(&im.out, E_INVALID, "digest");
        image_free(&im);
    }
}

TEST(import, refuses_what_does_not_add_up)
{
    struct image im = {0};
    auto_buf b = {0};
    image_layers(&im);
    image_oci(&im, false);
    /* a second index.json: two readers could disagree */
    buf_put(&b, im.out.p, im.out.n - 1024);
    tar_add(&b, (struct member){.name = "./index.json", .data = "{}"});
    tar_end(&b);
    refused(&b, E_INVALID, "twice");
    /* no image at all */
    b.n = 0;
    tar_add(&b, (struct member){.name = "hello", .data = "x"});
    tar_end(&b);
    refused(&b, E_INVALID, "not an image archive");
    /* a blob is missing */
    b.n = 0;
    tar_add(&b, (struct member){.name = "oci-layout", .data = "{\"imageLayoutVersion\":\"1.0.0\"}"});
    tar_add(&b, (struct member){.name = "index.json", .data = "{\"manifests\":[" DESC(MT_MANIFEST, "") "]}"});
    tar_end(&b);
    refused(&b, E_INVALID, "missing");
    /* a blob that is a link to nowhere, to itself */
    b.n = 0;
    tar_add(&b, (struct member){.name = "manifest.json", .data = "[{\"Config\":\"c\",\"Layers\":[]}]"});
    tar_add(&b, (struct member){.name = "c", .type = '2', .link = "d"});
    tar_add(&b, (struct member){.name = "d", .type = '2', .link = "c"});
    tar_end(&b);
    refused(&b, E_INVALID, "missing");
    b.n = 0;
    tar_add(&b, (struct member){.name = "../manifest.json", .data = "[]"});
    tar_end(&b);
    refused(&b, E_INVALID, "\"..\"");
    image_free(&im);
}

TEST(import, layer_count_must_match)
{
    struct image im = {0};
    image_layers(&im);
    image_docker(&im);
    char *at = memmem(im.out.p, im.out.n, ",\"b/layer.tar\"]", 15);
    CHECK(at);
    memcpy(at, "]              ", 15);
    refused(&im.out, E_INVALID, "number of layers");
    image_free(&im);
}

TEST(import, hostile_layers_stay_inside)
{
    struct image im = {0};
    image_layers(&im);
    im.layer[1].n = 0;
    tar_add(&im.layer[1], (struct member){.name = "out", .type = '2', .link = "../.."});
    tar_add(&im.layer[1], (struct member){.name = "out/secret", .data = "overwritten"});
    tar_add(&im.layer[1], (struct member){.name = "out/.wh.secret"});
    tar_end(&im.layer[1]);
    image_docker(&im);
    struct place p = place_new();
    auto_free struct oci_config *c = xcalloc(1, sizeof *c);
    struct err e = {0};
    if (import(&p, &im.out, c, &e) == 0)
        oci_config_fini(c);
    place_free(&p);
    image_free(&im);
}

TEST(import, compressed_layers_and_archives)
{
    struct image im = {0};
    image_layers(&im);
    image_oci(&im, false);
    char path[] = "/tmp/hutch-oci-XXXXXX", cmd[128];
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, im.out.p, im.out.n) == (ssize_t)im.out.n);
    (void)snprintf(cmd, sizeof cmd, "gzip -n %s && mv %s.gz %s", path, path, path);
    CHECK(system(cmd) == 0);
    close(fd);
    fd = open(path, O_RDONLY);
    im.out.n = 0;
    char buf[4096];
    ssize_t n;
    while ((n = read(fd, buf, sizeof buf)) > 0)
        buf_put(&im.out, buf, (size_t)n);
    close(fd);
    unlink(path);
    arrives(&im);
    image_free(&im);
}

TEST_MAIN
