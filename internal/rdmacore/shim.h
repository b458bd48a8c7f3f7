//go:build linux && cgo

/*
 * The functions that Go calls. Each is one crossing, keeps no pointer that Go
 * has passed, and returns 0 or a code: an errno; or a negative number, which is
 * how address resolution hands out the codes of getaddrinfo(3); or RN_SILENT.
 */
#ifndef RDMANET_SHIM_H
#define RDMANET_SHIM_H

#include "abi.h"

#include <signal.h>

enum {
	RN_SILENT = 1 << 20, /* a call failed and left errno at 0 */
	RN_PRIVATE_DATA = 256,
	RN_BATCH = 32, /* work requests and completions handed to a driver at a time */
};

/* loader.c */

#define RN_POINTER(result, name, parameters) result(*name) parameters;
struct rn_api {
	RN_RDMACM_CALLS(RN_POINTER)
	RN_RDMACM_OPTIONAL_CALLS(RN_POINTER)
	RN_IBVERBS_CALLS(RN_POINTER)
};
#undef RN_POINTER

extern struct rn_api rn_api; /* valid once rn_load has returned 0 */

enum {
	RN_LOAD_NO_RDMACM = 1,
	RN_LOAD_NO_IBVERBS = 2,
	RN_LOAD_NO_SYMBOL = 3,
};

/* Opens the libraries and looks up the functions. On failure it returns one of
 * RN_LOAD_*, and in text what dlerror says, or the name of the symbol. */
int rn_load(const char *rdmacm, const char *ibverbs, char *text, size_t size);
int rn_has_addrinfo(void);

/* onethread.c: has the calls that look for devices made on one thread. */
void rn_use_one_thread(struct rn_api *api);

/* identifier.c */

struct rn_event {
	int type;
	int status;       /* an errno of the library's own is negated */
	uintptr_t handle; /* of the identifier; for a connect request, of the listener */
	struct rn_cm_id *request;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t flow_control;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	uint8_t private_data_len;
	uint8_t private_data[RN_PRIVATE_DATA];
};

struct rn_param {
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t flow_control;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	uint8_t private_data_len;
	uint8_t private_data[RN_PRIVATE_DATA];
};

struct rn_addrs { /* what an identifier knows about itself */
	struct sockaddr_storage src;
	struct sockaddr_storage dst;
	uint8_t sgid[16];
	uint8_t port_num;
};

int rn_create_channel(struct rn_event_channel **channel);
void rn_destroy_channel(struct rn_event_channel *channel);
int rn_next_event(struct rn_event_channel *channel, uintptr_t request_handle, struct rn_event *out);

int rn_create_id(struct rn_event_channel *channel, uintptr_t handle, struct rn_cm_id **id);
int rn_destroy_id(struct rn_cm_id *id);
int rn_bind(struct rn_cm_id *id, void *addr, int v6only);
int rn_resolve_addr(struct rn_cm_id *id, void *src, void *dst, int timeout_ms);
int rn_resolve_route(struct rn_cm_id *id, int timeout_ms);
int rn_set_path(struct rn_cm_id *id, void *path, size_t len);
int rn_connect(struct rn_cm_id *id, const struct rn_param *param);
int rn_listen(struct rn_cm_id *id, int backlog);
int rn_accept(struct rn_cm_id *id, const struct rn_param *param);
int rn_reject(struct rn_cm_id *id, const void *data, uint8_t len);
int rn_disconnect(struct rn_cm_id *id);
void rn_get_addrs(struct rn_cm_id *id, struct rn_addrs *out);

/* node and service may be NULL; flags are RN_RAI_*. */
int rn_resolve_addrinfo(struct rn_cm_id *id, const char *node, const char *service, int flags);
int rn_query_addrinfo(struct rn_cm_id *id, struct rn_addrinfo **list);
int rn_getaddrinfo(const char *node, const char *service, int flags, struct rn_addrinfo **list);
void rn_freeaddrinfo(struct rn_addrinfo *list);

/* device.c */

struct rn_limits {
	int max_qp_wr;
	int max_sge;
	int max_cqe;
	int max_qp_rd_atom;
	int max_qp_init_rd_atom;
	int link_layer; /* of port 1 */
	uint32_t vendor_id;
};

int rn_query_device(struct rn_context *verbs, struct rn_limits *out);
/* Takes a reference to a device, by which librdmacm keeps verbs open. */
int rn_hold_device(struct rn_context *verbs, struct rn_context ***hold);
void rn_release_device(struct rn_context **hold);
/* All devices, to be given back with rn_release_device. */
int rn_list_devices(struct rn_context ***list, int *n);
/* Makes librdmacm look for devices that are gone, and let go of them. */
void rn_sync_devices(void);

int rn_alloc_pd(struct rn_context *verbs, struct rn_pd **pd);
int rn_dealloc_pd(struct rn_pd *pd);
int rn_reg_mr(struct rn_pd *pd, void *addr, size_t len, int access, struct rn_mr **mr);
int rn_dereg_mr(struct rn_mr *mr);

int rn_create_cq(struct rn_context *verbs, int depth, struct rn_cq **cq);
/* A further completion queue, with the channel of cq. */
int rn_create_sends_cq(struct rn_cq *cq, int depth, struct rn_cq **sends);
/* Destroys both, of which sends may be NULL. */
int rn_destroy_cq(struct rn_cq *cq, unsigned int unacked, struct rn_cq *sends, unsigned int unacked_sends);
/* A completion queue without a channel, that nobody uses; NULL if there is none to be had. */
struct rn_cq *rn_guard_cq(struct rn_context *verbs, int depth);
void rn_destroy_guard_cq(struct rn_cq *cq);

struct rn_qp_ask {
	int send_depth;
	int recv_depth;
	int send_sge;
	int max_inline; /* in: asked for; out: granted */
	int signal_all;
};

/* sends may be NULL: then their completions go to cq, too. */
int rn_create_qp(struct rn_cm_id *id, struct rn_pd *pd, struct rn_cq *cq, struct rn_cq *sends,
		 struct rn_qp_ask *ask, struct rn_qp **qp);
/* Takes the queue pair away from its identifier, which then no longer touches it. */
void rn_detach_qp(struct rn_cm_id *id);
int rn_destroy_qp(struct rn_qp *qp);
int rn_qp_set_error(struct rn_qp *qp);

/* data.c */

/* Go's side of it: layout.go sees to it that the two agree. */

enum { /* verbs.Opcode */
	GO_OP_SEND = 0,
	GO_OP_WRITE = 1,
	GO_OP_WRITE_IMM = 2,
	GO_OP_READ = 3,
};

enum { /* verbs.SendFlags */
	GO_SIGNALED = 1,
	GO_INLINE = 2,
	GO_FENCE = 4,
	GO_SOLICITED = 8,
};

enum { /* verbs.WCOpcode */
	GO_WC_SEND = 0,
	GO_WC_WRITE = 1,
	GO_WC_READ = 2,
	GO_WC_RECV = 3,
	GO_WC_RECV_IMM = 4,
	GO_WC_OTHER = 5, /* none that was ever posted */
};

struct rn_go_send_wr { /* verbs.SendWR */
	uint64_t id;
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t imm;
	uint8_t opcode;
	uint8_t flags;
	uint8_t num_sge;
	uint8_t unused[5];
	struct rn_sge sge[2];
};

struct rn_go_recv_wr { /* verbs.RecvWR */
	uint64_t id;
	struct rn_sge sge;
};

struct rn_go_wc { /* verbs.WC */
	uint64_t id;
	uint32_t status;
	uint32_t opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm;
	uint32_t unused;
};

/* Post a batch. The result is the number of requests taken in the low half, and
 * the code of an error, or 0, in the high half. */
uint64_t rn_post_send(struct rn_qp *qp, const struct rn_go_send_wr *wr, int n);
uint64_t rn_post_recv(struct rn_qp *qp, const struct rn_go_recv_wr *wr, int n);
/* Returns how many completions it has moved, or a negated errno. */
int rn_poll(struct rn_cq *cq, struct rn_go_wc *wc, int n);
int rn_arm(struct rn_cq *cq);
/* Takes the events that wait in the channel of cq, so many at most, and counts those of
 * cq and those of others; returns how many, or a negated errno. */
int rn_drain(struct rn_cq *cq, unsigned int most, unsigned int *own, unsigned int *others);

/* wait.c */

/* A completion queue, or one for receives and one for sends, as it is waited for.
 * Addresses of it cross as numbers, so that cgo does not look for Go pointers behind
 * them each time. All but woken belongs to whoever may poll or wait. */
struct rn_watch {
	struct rn_cq *cq;
	struct rn_cq *sends;  /* or NULL: theirs go to cq, too */
	int muted;            /* completions in sends wake nobody */
	int epoll;            /* the set that Go's poller watches, with the channel in it or not */
	int attached;         /* the channel is in it */
	unsigned int arms;    /* events that may come, at most, before a queue is armed again */
	unsigned int unacked; /* events of cq taken, not acknowledged */
	unsigned int unacked_sends;
	int slept;       /* the last rn_linger went beyond its spin */
	int32_t woken;   /* rn_linger is to return */
	int32_t asleep;  /* it sleeps, or is about to: a write to waker ends that */
	int waker;       /* an eventfd, -1 before the first sleep */
	struct rn_go_wc wc[RN_BATCH];
};

/* rn_unwatch closes what the watch has of its own; not the set, which is the caller's
 * to close. */
int rn_watch(struct rn_cq *cq, struct rn_cq *sends, struct rn_watch **watch);
void rn_unwatch(struct rn_watch *watch);
/* Puts the channel into the set. */
int rn_attach(uintptr_t watch);
/* Returns how many completions, at most n, it has moved to the watch, or a negated
 * errno. */
int rn_watch_poll(uintptr_t watch, int n);
int rn_watch_arm(uintptr_t watch);
/* Takes the events that wait in the channel; returns how many, or a negated errno. */
int rn_watch_take(uintptr_t watch);
/* Has rn_linger return. */
void rn_wake(struct rn_watch *watch);
/* Waits for completions on the calling thread: polls for spin ns, then sleeps for
 * block ns, less than a second; either may be 0. Returns how many have come. */
int rn_linger(uintptr_t watch, int n, int64_t spin, int64_t block);

/* signal.c */

/* Makes sure that the signal of rn_signal has the handler it needs. */
int rn_install_handler(void);
int rn_signal(void); /* the number of the signal that ends a blocked call */
int rn_unblock_signal(void);
/* Make the calling thread's signals wait, but for that one and those of its own faults. */
int rn_hold_signals(sigset_t *before);
void rn_release_signals(const sigset_t *before);

#endif
