/* What hutchd and the warden of an isolate say to each other over the agent
 * channel (wire/frame.h, wire/msg.h for OP_PING and OP_SHUTDOWN). Numbers are
 * apart from the sandbox agent's: the warden knows no sandbox operation, and
 * an agent knows none of these.
 *
 * OP_ISO_CALL: one program, one process. TI_TOTAL (bytes of the payload),
 * TI_BYTES (its beginning; what is left follows as DATA on CH_STDIN), TI_WALL_MS,
 * TI_CPU_MS, TI_MEM_BYTES, TI_OUT_BYTES (of standard output and error each),
 * TI_RESULT_BYTES, T_CREDIT (must cover all three pipes).
 * DATA on CH_STDOUT, CH_STDERR and CH_FILE (the result pipe, wire/zygote.h) as it comes, then FR_RES:
 * TI_STATUS (of wait(2)), TI_CUT (enum iso_cut: why the warden ended it), TI_CPU_NS, TI_WALL_NS, TI_RSS_BYTES (peak, above
 * the interpreter's own), TI_OWN_BYTES (of the interpreter, that a call may fill or make its own copy of beside what it is given). An error is the warden's: no interpreter (E_UNSUPPORTED), it does not start or died (E_GUEST). */
#pragma once

enum iso_op { OP_ISO_CALL = 200 };
enum iso_cut { ISO_UNCUT, ISO_CUT_WALL, ISO_CUT_CPU, ISO_CUT_OUTPUT, ISO_CUT_RESULT };
enum iso_tag {
    TI_TOTAL = 128, TI_BYTES, TI_WALL_MS, TI_CPU_MS, TI_MEM_BYTES, TI_OUT_BYTES, TI_RESULT_BYTES, TI_STATUS, TI_CUT, TI_CPU_NS, TI_WALL_NS,
    TI_RSS_BYTES, TI_OWN_BYTES,
};
#define ISO_TOTAL_MAX  (2u << 20)
#define ISO_FIRST_MAX  (192u << 10) /* of the payload inside the request */
