//go:build linux && cgo

/*
 * What this package uses of the binary interface of librdmacm.so.1 and
 * libibverbs.so.1, in our own declarations, so that a build needs no RDMA
 * headers. TestABI compiles them against the distribution's headers and
 * compares every size, offset, constant and prototype.
 *
 * A structure that the libraries allocate is declared as far as it is read. One
 * that they fill in for us, or of which they read more than we set, is declared
 * whole or has room behind its last member.
 */
#ifndef RDMANET_ABI_H
#define RDMANET_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* -------------------------------------------------------------- libibverbs */

enum { /* enum ibv_transport_type */
	RN_TRANSPORT_IB = 0,
	RN_TRANSPORT_IWARP = 1,
};

enum { /* ibv_port_attr.link_layer */
	RN_LINK_LAYER_UNSPECIFIED = 0,
	RN_LINK_LAYER_INFINIBAND = 1,
	RN_LINK_LAYER_ETHERNET = 2,
};

enum { /* enum ibv_access_flags */
	RN_ACCESS_LOCAL_WRITE = 1,
	RN_ACCESS_REMOTE_WRITE = 2,
	RN_ACCESS_REMOTE_READ = 4,
};

enum { /* enum ibv_qp_type */
	RN_QPT_RC = 2,
};

enum { /* enum ibv_qp_state, enum ibv_qp_attr_mask */
	RN_QPS_ERR = 6,
	RN_QP_STATE = 1,
};

enum { /* enum ibv_wr_opcode */
	RN_WR_RDMA_WRITE = 0,
	RN_WR_RDMA_WRITE_WITH_IMM = 1,
	RN_WR_SEND = 2,
	RN_WR_RDMA_READ = 4,
};

enum { /* enum ibv_send_flags */
	RN_SEND_FENCE = 1,
	RN_SEND_SIGNALED = 2,
	RN_SEND_SOLICITED = 4,
	RN_SEND_INLINE = 8,
};

enum { /* enum ibv_wc_opcode */
	RN_WC_SEND = 0,
	RN_WC_RDMA_WRITE = 1,
	RN_WC_RDMA_READ = 2,
	RN_WC_RECV = 128,
	RN_WC_RECV_RDMA_WITH_IMM = 129,
};

enum { /* enum ibv_wc_flags */
	RN_WC_WITH_IMM = 2,
};

struct rn_device { /* struct ibv_device */
	void *reserved[2];
	int node_type;
	int transport_type;
	char name[64];
};

struct rn_cq;
struct rn_qp;
struct rn_wc;
struct rn_send_wr;
struct rn_recv_wr;

/* struct ibv_context_ops: the calls that are inline functions in the headers
 * and exported by nobody */
struct rn_context_ops {
	void *unused0[11];
	int (*poll_cq)(struct rn_cq *cq, int n, struct rn_wc *wc);
	int (*req_notify_cq)(struct rn_cq *cq, int solicited_only);
	void *unused1[12];
	int (*post_send)(struct rn_qp *qp, struct rn_send_wr *wr, struct rn_send_wr **bad);
	int (*post_recv)(struct rn_qp *qp, struct rn_recv_wr *wr, struct rn_recv_wr **bad);
	void *unused2[5];
};

struct rn_context { /* struct ibv_context */
	struct rn_device *device;
	struct rn_context_ops ops;
};

struct rn_device_attr { /* struct ibv_device_attr, whole */
	char fw_ver[64];
	uint64_t node_guid;
	uint64_t sys_image_guid;
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t hw_ver;
	int max_qp;
	int max_qp_wr;
	unsigned int device_cap_flags;
	int max_sge;
	int max_sge_rd;
	int max_cq;
	int max_cqe;
	int max_mr;
	int max_pd;
	int max_qp_rd_atom;
	int max_ee_rd_atom;
	int max_res_rd_atom;
	int max_qp_init_rd_atom;
	int unused[16];
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay;
	uint8_t phys_port_cnt;
};

/* What the exported ibv_query_port fills in: an older, shorter form of struct
 * ibv_port_attr. (The inline function of that name in the headers calls the
 * driver, by way of a structure that only the headers describe.) */
struct rn_port_attr {
	int state;
	uint8_t unused0[42];
	uint8_t link_layer;
	uint8_t room[81];
};

struct rn_pd { /* struct ibv_pd */
	struct rn_context *context;
};

struct rn_mr { /* struct ibv_mr */
	struct rn_context *context;
	struct rn_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle;
	uint32_t lkey;
	uint32_t rkey;
};

struct rn_comp_channel { /* struct ibv_comp_channel */
	struct rn_context *context;
	int fd;
};

struct rn_cq { /* struct ibv_cq */
	struct rn_context *context;
	struct rn_comp_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
};

struct rn_qp { /* struct ibv_qp */
	struct rn_context *context;
};

struct rn_qp_cap { /* struct ibv_qp_cap, whole */
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data;
};

struct rn_qp_init_attr { /* struct ibv_qp_init_attr, whole */
	void *qp_context;
	struct rn_cq *send_cq;
	struct rn_cq *recv_cq;
	void *srq;
	struct rn_qp_cap cap;
	int qp_type;
	int sq_sig_all;
};

struct rn_qp_attr { /* struct ibv_qp_attr */
	int qp_state;
	uint8_t room[252];
};

struct rn_sge { /* struct ibv_sge, whole; verbs.SGE is the same */
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct rn_send_wr { /* struct ibv_send_wr */
	uint64_t wr_id;
	struct rn_send_wr *next;
	struct rn_sge *sg_list;
	int num_sge;
	int opcode;
	unsigned int send_flags;
	uint32_t imm_data; /* big-endian */
	uint64_t remote_addr;
	uint32_t rkey;
	uint64_t room[9];
};

struct rn_recv_wr { /* struct ibv_recv_wr, whole */
	uint64_t wr_id;
	struct rn_recv_wr *next;
	struct rn_sge *sg_list;
	int num_sge;
};

struct rn_wc { /* struct ibv_wc, whole */
	uint64_t wr_id;
	int status;
	int opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm_data; /* big-endian */
	uint32_t qp_num;
	uint32_t src_qp;
	unsigned int wc_flags;
	uint16_t pkey_index;
	uint16_t slid;
	uint8_t sl;
	uint8_t dlid_path_bits;
};

/* --------------------------------------------------------------- librdmacm */

enum { /* enum rdma_cm_event_type */
	RN_EVENT_ADDR_RESOLVED = 0,
	RN_EVENT_ADDR_ERROR = 1,
	RN_EVENT_ROUTE_RESOLVED = 2,
	RN_EVENT_ROUTE_ERROR = 3,
	RN_EVENT_CONNECT_REQUEST = 4,
	RN_EVENT_CONNECT_RESPONSE = 5,
	RN_EVENT_CONNECT_ERROR = 6,
	RN_EVENT_UNREACHABLE = 7,
	RN_EVENT_REJECTED = 8,
	RN_EVENT_ESTABLISHED = 9,
	RN_EVENT_DISCONNECTED = 10,
	RN_EVENT_DEVICE_REMOVAL = 11,
	RN_EVENT_ADDR_CHANGE = 14,
	RN_EVENT_TIMEWAIT_EXIT = 15,
	RN_EVENT_ADDRINFO_RESOLVED = 16, /* since 2025 */
	RN_EVENT_ADDRINFO_ERROR = 17,    /* since 2025 */
};

enum rn_port_space { /* enum rdma_port_space */
	RN_PS_TCP = 0x106,
};

enum { /* levels and names of rdma_set_option */
	RN_OPTION_ID = 0,
	RN_OPTION_ID_AFONLY = 2,
	RN_OPTION_IB = 1,
	RN_OPTION_IB_PATH = 1,
};

enum { /* rdma_addrinfo.ai_flags */
	RN_RAI_PASSIVE = 1,
	RN_RAI_NUMERICHOST = 2,
	RN_RAI_SA = 16, /* since 2025 */
};

enum { /* the value of responder_resources and initiator_depth that means "the most" */
	RN_MAX_DEPTH = 255,
};

enum {
	RN_AF_IB = 27,
	RN_SOCKADDR_IB_SIZE = 48, /* sizeof(struct sockaddr_ib) */
};

struct rn_event_channel { /* struct rdma_event_channel, whole */
	int fd;
};

struct rn_cm_id { /* struct rdma_cm_id */
	struct rn_context *verbs;
	struct rn_event_channel *channel;
	void *context;
	struct rn_qp *qp;
	struct { /* struct rdma_route, and in it struct rdma_addr */
		struct sockaddr_storage src_addr;
		struct sockaddr_storage dst_addr;
		uint8_t sgid[16];
		uint8_t dgid[16];
		uint16_t pkey;
		void *path_rec;
		int num_paths;
	} route;
	int ps;
	uint8_t port_num;
};

struct rn_conn_param { /* struct rdma_conn_param, whole */
	const void *private_data;
	uint8_t private_data_len;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t flow_control;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	uint8_t srq;
	uint32_t qp_num;
};

struct rn_cm_event { /* struct rdma_cm_event */
	struct rn_cm_id *id;
	struct rn_cm_id *listen_id;
	int event;
	int status;
	struct rn_conn_param conn; /* the union param begins with it */
};

struct rn_addrinfo { /* struct rdma_addrinfo, whole */
	int ai_flags;
	int ai_family;
	int ai_qp_type;
	int ai_port_space;
	socklen_t ai_src_len;
	socklen_t ai_dst_len;
	struct sockaddr *ai_src_addr;
	struct sockaddr *ai_dst_addr;
	char *ai_src_canonname;
	char *ai_dst_canonname;
	size_t ai_route_len;
	void *ai_route;
	size_t ai_connect_len;
	void *ai_connect;
	struct rn_addrinfo *ai_next;
};

/* ------------------------------------------------------------- the functions
 *
 * X(result, name, parameters) for each function that is looked up. All have a
 * plain or a default symbol version, which is what dlsym finds.
 */
#define RN_RDMACM_CALLS(X)                                                                         \
	X(struct rn_event_channel *, rdma_create_event_channel, (void))                            \
	X(void, rdma_destroy_event_channel, (struct rn_event_channel *))                           \
	X(int, rdma_create_id, (struct rn_event_channel *, struct rn_cm_id **, void *,             \
				enum rn_port_space))                                       \
	X(int, rdma_destroy_id, (struct rn_cm_id *))                                               \
	X(int, rdma_bind_addr, (struct rn_cm_id *, struct sockaddr *))                             \
	X(int, rdma_resolve_addr, (struct rn_cm_id *, struct sockaddr *, struct sockaddr *, int))  \
	X(int, rdma_resolve_route, (struct rn_cm_id *, int))                                       \
	X(int, rdma_create_qp, (struct rn_cm_id *, struct rn_pd *, struct rn_qp_init_attr *))      \
	X(int, rdma_connect, (struct rn_cm_id *, struct rn_conn_param *))                          \
	X(int, rdma_listen, (struct rn_cm_id *, int))                                              \
	X(int, rdma_accept, (struct rn_cm_id *, struct rn_conn_param *))                           \
	X(int, rdma_reject, (struct rn_cm_id *, const void *, uint8_t))                            \
	X(int, rdma_disconnect, (struct rn_cm_id *))                                               \
	X(int, rdma_get_cm_event, (struct rn_event_channel *, struct rn_cm_event **))              \
	X(int, rdma_ack_cm_event, (struct rn_cm_event *))                                          \
	X(int, rdma_set_option, (struct rn_cm_id *, int, int, void *, size_t))                     \
	X(int, rdma_getaddrinfo, (const char *, const char *, const struct rn_addrinfo *,          \
				  struct rn_addrinfo **))                                          \
	X(void, rdma_freeaddrinfo, (struct rn_addrinfo *))                                         \
	X(struct rn_context **, rdma_get_devices, (int *))                                         \
	X(void, rdma_free_devices, (struct rn_context **))

/* Not in libraries from before 2025; their absence is not an error. */
#define RN_RDMACM_OPTIONAL_CALLS(X)                                                                \
	X(int, rdma_resolve_addrinfo, (struct rn_cm_id *, const char *, const char *,              \
				       const struct rn_addrinfo *))                                \
	X(int, rdma_query_addrinfo, (struct rn_cm_id *, struct rn_addrinfo **))

#define RN_IBVERBS_CALLS(X)                                                                        \
	X(int, ibv_query_device, (struct rn_context *, struct rn_device_attr *))                   \
	X(int, ibv_query_port, (struct rn_context *, uint8_t, struct rn_port_attr *))              \
	X(struct rn_pd *, ibv_alloc_pd, (struct rn_context *))                                     \
	X(int, ibv_dealloc_pd, (struct rn_pd *))                                                   \
	X(struct rn_mr *, ibv_reg_mr, (struct rn_pd *, void *, size_t, int))                       \
	X(int, ibv_dereg_mr, (struct rn_mr *))                                                     \
	X(struct rn_comp_channel *, ibv_create_comp_channel, (struct rn_context *))                \
	X(int, ibv_destroy_comp_channel, (struct rn_comp_channel *))                               \
	X(struct rn_cq *, ibv_create_cq, (struct rn_context *, int, void *,                        \
					  struct rn_comp_channel *, int))                          \
	X(int, ibv_destroy_cq, (struct rn_cq *))                                                   \
	X(int, ibv_get_cq_event, (struct rn_comp_channel *, struct rn_cq **, void **))             \
	X(void, ibv_ack_cq_events, (struct rn_cq *, unsigned int))                                 \
	X(int, ibv_modify_qp, (struct rn_qp *, struct rn_qp_attr *, int))                          \
	X(int, ibv_destroy_qp, (struct rn_qp *))

#endif
