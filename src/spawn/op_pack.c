#include "spawn/server.h"
int op_pack(struct server *s, struct request *r, struct err *e) { (void)s, (void)r; return err_set(e, E_UNSUPPORTED, "soon"); }
int op_tool(struct server *s, struct request *r, struct err *e) { (void)s, (void)r; return err_set(e, E_UNSUPPORTED, "soon"); }
