/* The JSON of container images, as pure functions over bounded text: OCI image
 * layout (image-spec v1: index.json, manifest, config) and docker-archive
 * (manifest.json, config). The text is hostile; what comes out is checked:
 * digests are 64 lower-case hex digits of sha256, sizes and counts bounded,
 * member names clean relative paths, platform linux/amd64.
 *
 * The run-time part of the config crosses from the jailed importer to the
 * daemon as one line of JSON: oci_config_write there, oci_config_read here. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OCI_JSON_MAX    (1u << 20)
#define OCI_LAYERS_MAX  128
#define OCI_INDEX_MAX   256  /* manifests in an index */
#define OCI_LIST_MAX    256  /* Env, Entrypoint, Cmd entries */
#define OCI_STRING_MAX  32768
#define OCI_CONFIG_MAX  (256u << 10) /* bytes of one config line */
#define OCI_DIGEST_HEX  65

enum oci_media { OCI_INDEX = 1, OCI_MANIFEST, OCI_CONFIG, OCI_LAYER };

struct oci_desc {
    enum oci_media media;
    uint64_t size;
    char sha256[OCI_DIGEST_HEX];
};

/* index.json -> the one manifest (or nested index) for linux/amd64. */
int oci_index(const char *p, size_t n, struct oci_desc *ret, struct err *e) __attribute__((warn_unused_result));

struct oci_manifest {
    struct oci_desc config, layer[OCI_LAYERS_MAX];
    size_t nlayers;
};
int oci_manifest(const char *p, size_t n, struct oci_manifest *ret, struct err *e) __attribute__((warn_unused_result));

/* manifest.json of a docker-archive: member names, freed with oci_docker_fini. */
struct oci_docker {
    char *config, *layer[OCI_LAYERS_MAX];
    size_t nlayers;
};
int oci_docker(const char *p, size_t n, struct oci_docker *ret, struct err *e) __attribute__((warn_unused_result));
void oci_docker_fini(struct oci_docker *d);

struct oci_list { char **v; size_t n; };
struct oci_config {
    struct oci_list env /* "K=V" */, entrypoint, cmd;
    char *user, *workdir; /* "" if not given */
    size_t ndiff;
    char diff_id[OCI_LAYERS_MAX][OCI_DIGEST_HEX]; /* sha256 of the uncompressed layers; not part of the line */
};
int oci_config(const char *p, size_t n, struct oci_config *ret, struct err *e) __attribute__((warn_unused_result));
void oci_config_fini(struct oci_config *c);
void oci_config_write(const struct oci_config *c, struct buf *out); /* no newline in it */
int oci_config_read(const char *p, size_t n, struct oci_config *ret, struct err *e) __attribute__((warn_unused_result));
