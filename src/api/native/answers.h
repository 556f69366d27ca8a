/* What the native API answers with: tables of members (api/fields.h). The writers are in the handlers; a test compares
 * what they write with these rows. */
#pragma once
#include "api/fields.h"

extern const struct shape problem_shape, network_shape;
extern const struct shape sandbox_shape, sandbox_list_shape, recovered_shape, fork_list_shape,
    url_shape;
extern const struct shape metrics_shape, logs_shape, console_shape, event_shape, event_list_shape;
extern const struct shape scope_shape;
extern const struct shape snapshot_shape, snapshot_list_shape, usage_list_shape, tenant_list_shape;
extern const struct shape signer_shape, signer_list_shape;
extern const struct shape network_changed_shape, egress_list_shape, secret_shape, secret_list_shape;
extern const struct shape exec_result_shape, exec_started_shape, exec_event_shape, process_shape,
    process_list_shape;
extern const struct shape eval_result_shape, eval_event_shape, context_shape, context_list_shape,
    program_result_shape;
extern const struct shape entry_shape, entry_list_shape, change_shape, volume_shape,
    volume_list_shape;
extern const struct shape template_shape, template_list_shape, build_event_shape;
extern const struct shape key_created_shape, key_list_shape;
extern const struct shape health_shape, doctor_shape, nothing_shape, openapi_shape;
