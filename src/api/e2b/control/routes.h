/* The handlers of the control plane, by file; dialect.c has their routes. */
#pragma once
#include "api/e2b/e2b.h"

http_handler e2b_create, e2b_create_v2, e2b_get, e2b_delete, e2b_timeout, e2b_refresh,
    e2b_health; /* sandboxes.c */
http_handler e2b_list, e2b_list_v2;
http_handler e2b_pause, e2b_connect, e2b_resume; /* lifecycle.c */
http_handler e2b_network;
http_handler e2b_logs, e2b_logs_v2;
http_handler e2b_metrics, e2b_metrics_batch;
http_handler e2b_fork, e2b_snapshot_take, e2b_snapshots;
http_handler e2b_volumes, e2b_volume_new, e2b_volume_get, e2b_volume_delete, e2b_volume_content;
http_handler e2b_secrets, e2b_secret_new, e2b_secret_get, e2b_secret_update, e2b_secret_delete;
http_handler e2b_templates, e2b_template_new, e2b_template_get, e2b_template_patch,
    e2b_template_delete, e2b_template_alias;
http_handler e2b_template_tags, e2b_tags_set, e2b_tags_del; /* tags.c */
http_handler e2b_build_start, e2b_build_status, e2b_build_logs, e2b_build_file, e2b_build_upload;
