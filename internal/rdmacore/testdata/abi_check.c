/*
 * Compares abi.h with the headers of librdmacm and libibverbs. It is compiled by
 * TestABI, and never linked nor run: what does not hold does not compile.
 */
#include <rdma/rdma_cma.h>
#include <infiniband/ib.h>

#include "abi.h"
#include "shim.h"

#define SAME(ours, theirs) \
	_Static_assert((long long)(ours) == (long long)(theirs), #ours " is not " #theirs);
#define SAME_SIZE(ours, theirs) SAME(sizeof(struct ours), sizeof(struct theirs))
/* the libraries allocate it */
#define BEGINNING(ours, theirs) \
	_Static_assert(sizeof(struct ours) <= sizeof(struct theirs), #ours " is too long");
/* we allocate it */
#define ROOM(ours, theirs) \
	_Static_assert(sizeof(struct ours) >= sizeof(struct theirs), #ours " is too short");
#define FIELD2(ours, our_field, theirs, their_field)                                      \
	SAME(offsetof(struct ours, our_field), offsetof(struct theirs, their_field))      \
	SAME(sizeof(((struct ours *)0)->our_field), sizeof(((struct theirs *)0)->their_field))
#define FIELD(ours, theirs, field) FIELD2(ours, field, theirs, field)

/* libibverbs */

SAME(RN_TRANSPORT_IB, IBV_TRANSPORT_IB)
SAME(RN_TRANSPORT_IWARP, IBV_TRANSPORT_IWARP)
SAME(RN_LINK_LAYER_UNSPECIFIED, IBV_LINK_LAYER_UNSPECIFIED)
SAME(RN_LINK_LAYER_INFINIBAND, IBV_LINK_LAYER_INFINIBAND)
SAME(RN_LINK_LAYER_ETHERNET, IBV_LINK_LAYER_ETHERNET)
SAME(RN_ACCESS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE)
SAME(RN_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE)
SAME(RN_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_READ)
SAME(RN_QPT_RC, IBV_QPT_RC)
SAME(RN_QPS_ERR, IBV_QPS_ERR)
SAME(RN_QP_STATE, IBV_QP_STATE)
SAME(RN_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE)
SAME(RN_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM)
SAME(RN_WR_SEND, IBV_WR_SEND)
SAME(RN_WR_RDMA_READ, IBV_WR_RDMA_READ)
SAME(RN_SEND_FENCE, IBV_SEND_FENCE)
SAME(RN_SEND_SIGNALED, IBV_SEND_SIGNALED)
SAME(RN_SEND_SOLICITED, IBV_SEND_SOLICITED)
SAME(RN_SEND_INLINE, IBV_SEND_INLINE)
SAME(RN_WC_SEND, IBV_WC_SEND)
SAME(RN_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE)
SAME(RN_WC_RDMA_READ, IBV_WC_RDMA_READ)
SAME(RN_WC_RECV, IBV_WC_RECV)
SAME(RN_WC_RECV_RDMA_WITH_IMM, IBV_WC_RECV_RDMA_WITH_IMM)
SAME(RN_WC_WITH_IMM, IBV_WC_WITH_IMM)

BEGINNING(rn_device, ibv_device)
FIELD(rn_device, ibv_device, node_type)
FIELD(rn_device, ibv_device, transport_type)
FIELD(rn_device, ibv_device, name)

SAME_SIZE(rn_context_ops, ibv_context_ops)
FIELD(rn_context_ops, ibv_context_ops, poll_cq)
FIELD(rn_context_ops, ibv_context_ops, req_notify_cq)
FIELD(rn_context_ops, ibv_context_ops, post_send)
FIELD(rn_context_ops, ibv_context_ops, post_recv)

BEGINNING(rn_context, ibv_context)
FIELD(rn_context, ibv_context, device)
FIELD(rn_context, ibv_context, ops)

SAME_SIZE(rn_device_attr, ibv_device_attr)
FIELD(rn_device_attr, ibv_device_attr, max_qp_wr)
FIELD(rn_device_attr, ibv_device_attr, max_sge)
FIELD(rn_device_attr, ibv_device_attr, max_cqe)
FIELD(rn_device_attr, ibv_device_attr, vendor_id)
FIELD(rn_device_attr, ibv_device_attr, max_qp_rd_atom)
FIELD(rn_device_attr, ibv_device_attr, max_qp_init_rd_atom)
FIELD(rn_device_attr, ibv_device_attr, phys_port_cnt)

ROOM(rn_port_attr, ibv_port_attr)
FIELD(rn_port_attr, ibv_port_attr, state)
FIELD(rn_port_attr, ibv_port_attr, link_layer)

BEGINNING(rn_pd, ibv_pd)
FIELD(rn_pd, ibv_pd, context)

BEGINNING(rn_mr, ibv_mr)
FIELD(rn_mr, ibv_mr, context)
FIELD(rn_mr, ibv_mr, pd)
FIELD(rn_mr, ibv_mr, addr)
FIELD(rn_mr, ibv_mr, length)
FIELD(rn_mr, ibv_mr, lkey)
FIELD(rn_mr, ibv_mr, rkey)

BEGINNING(rn_comp_channel, ibv_comp_channel)
FIELD(rn_comp_channel, ibv_comp_channel, context)
FIELD(rn_comp_channel, ibv_comp_channel, fd)

BEGINNING(rn_cq, ibv_cq)
FIELD(rn_cq, ibv_cq, context)
FIELD(rn_cq, ibv_cq, channel)
FIELD(rn_cq, ibv_cq, cq_context)
FIELD(rn_cq, ibv_cq, cqe)

BEGINNING(rn_qp, ibv_qp)
FIELD(rn_qp, ibv_qp, context)

SAME_SIZE(rn_qp_cap, ibv_qp_cap)
FIELD(rn_qp_cap, ibv_qp_cap, max_send_wr)
FIELD(rn_qp_cap, ibv_qp_cap, max_recv_wr)
FIELD(rn_qp_cap, ibv_qp_cap, max_send_sge)
FIELD(rn_qp_cap, ibv_qp_cap, max_recv_sge)
FIELD(rn_qp_cap, ibv_qp_cap, max_inline_data)

SAME_SIZE(rn_qp_init_attr, ibv_qp_init_attr)
FIELD(rn_qp_init_attr, ibv_qp_init_attr, qp_context)
FIELD(rn_qp_init_attr, ibv_qp_init_attr, send_cq)
FIELD(rn_qp_init_attr, ibv_qp_init_attr, recv_cq)
FIELD(rn_qp_init_attr, ibv_qp_init_attr, srq)
FIELD(rn_qp_init_attr, ibv_qp_init_attr, cap)
FIELD(rn_qp_init_attr, ibv_qp_init_attr, qp_type)
FIELD(rn_qp_init_attr, ibv_qp_init_attr, sq_sig_all)

ROOM(rn_qp_attr, ibv_qp_attr)
FIELD(rn_qp_attr, ibv_qp_attr, qp_state)

SAME_SIZE(rn_sge, ibv_sge)
FIELD(rn_sge, ibv_sge, addr)
FIELD(rn_sge, ibv_sge, length)
FIELD(rn_sge, ibv_sge, lkey)

ROOM(rn_send_wr, ibv_send_wr)
FIELD(rn_send_wr, ibv_send_wr, wr_id)
FIELD(rn_send_wr, ibv_send_wr, next)
FIELD(rn_send_wr, ibv_send_wr, sg_list)
FIELD(rn_send_wr, ibv_send_wr, num_sge)
FIELD(rn_send_wr, ibv_send_wr, opcode)
FIELD(rn_send_wr, ibv_send_wr, send_flags)
FIELD(rn_send_wr, ibv_send_wr, imm_data)
FIELD2(rn_send_wr, remote_addr, ibv_send_wr, wr.rdma.remote_addr)
FIELD2(rn_send_wr, rkey, ibv_send_wr, wr.rdma.rkey)

SAME_SIZE(rn_recv_wr, ibv_recv_wr)
FIELD(rn_recv_wr, ibv_recv_wr, wr_id)
FIELD(rn_recv_wr, ibv_recv_wr, next)
FIELD(rn_recv_wr, ibv_recv_wr, sg_list)
FIELD(rn_recv_wr, ibv_recv_wr, num_sge)

SAME_SIZE(rn_wc, ibv_wc)
FIELD(rn_wc, ibv_wc, wr_id)
FIELD(rn_wc, ibv_wc, status)
FIELD(rn_wc, ibv_wc, opcode)
FIELD(rn_wc, ibv_wc, vendor_err)
FIELD(rn_wc, ibv_wc, byte_len)
FIELD(rn_wc, ibv_wc, imm_data)
FIELD(rn_wc, ibv_wc, wc_flags)

/* verbs.WCStatus is handed through */
SAME(0, IBV_WC_SUCCESS)
SAME(1, IBV_WC_LOC_LEN_ERR)
SAME(2, IBV_WC_LOC_QP_OP_ERR)
SAME(4, IBV_WC_LOC_PROT_ERR)
SAME(5, IBV_WC_WR_FLUSH_ERR)
SAME(9, IBV_WC_REM_INV_REQ_ERR)
SAME(10, IBV_WC_REM_ACCESS_ERR)
SAME(11, IBV_WC_REM_OP_ERR)
SAME(12, IBV_WC_RETRY_EXC_ERR)
SAME(13, IBV_WC_RNR_RETRY_EXC_ERR)
SAME(16, IBV_WC_REM_ABORT_ERR)
SAME(19, IBV_WC_FATAL_ERR)
SAME(20, IBV_WC_RESP_TIMEOUT_ERR)
SAME(21, IBV_WC_GENERAL_ERR)

/* librdmacm */

SAME(RN_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ADDR_RESOLVED)
SAME(RN_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_ERROR)
SAME(RN_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED)
SAME(RN_EVENT_ROUTE_ERROR, RDMA_CM_EVENT_ROUTE_ERROR)
SAME(RN_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_REQUEST)
SAME(RN_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_CONNECT_RESPONSE)
SAME(RN_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_CONNECT_ERROR)
SAME(RN_EVENT_UNREACHABLE, RDMA_CM_EVENT_UNREACHABLE)
SAME(RN_EVENT_REJECTED, RDMA_CM_EVENT_REJECTED)
SAME(RN_EVENT_ESTABLISHED, RDMA_CM_EVENT_ESTABLISHED)
SAME(RN_EVENT_DISCONNECTED, RDMA_CM_EVENT_DISCONNECTED)
SAME(RN_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_DEVICE_REMOVAL)
SAME(RN_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_ADDR_CHANGE)
SAME(RN_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_TIMEWAIT_EXIT)
SAME(RN_PS_TCP, RDMA_PS_TCP)
SAME(RN_OPTION_ID, RDMA_OPTION_ID)
SAME(RN_OPTION_ID_AFONLY, RDMA_OPTION_ID_AFONLY)
SAME(RN_OPTION_IB, RDMA_OPTION_IB)
SAME(RN_OPTION_IB_PATH, RDMA_OPTION_IB_PATH)
SAME(RN_RAI_PASSIVE, RAI_PASSIVE)
SAME(RN_RAI_NUMERICHOST, RAI_NUMERICHOST)
SAME(RN_MAX_DEPTH, RDMA_MAX_RESP_RES)
SAME(RN_MAX_DEPTH, RDMA_MAX_INIT_DEPTH)
SAME(RN_AF_IB, AF_IB)
SAME(RN_SOCKADDR_IB_SIZE, sizeof(struct sockaddr_ib))
#ifdef RAI_SA /* the headers are of 2025 or later */
SAME(RN_RAI_SA, RAI_SA)
SAME(RN_EVENT_ADDRINFO_RESOLVED, RDMA_CM_EVENT_ADDRINFO_RESOLVED)
SAME(RN_EVENT_ADDRINFO_ERROR, RDMA_CM_EVENT_ADDRINFO_ERROR)
#endif

SAME_SIZE(rn_event_channel, rdma_event_channel)
FIELD(rn_event_channel, rdma_event_channel, fd)

BEGINNING(rn_cm_id, rdma_cm_id)
FIELD(rn_cm_id, rdma_cm_id, verbs)
FIELD(rn_cm_id, rdma_cm_id, channel)
FIELD(rn_cm_id, rdma_cm_id, context)
FIELD(rn_cm_id, rdma_cm_id, qp)
FIELD(rn_cm_id, rdma_cm_id, route)
FIELD2(rn_cm_id, route.src_addr, rdma_cm_id, route.addr.src_storage)
FIELD2(rn_cm_id, route.dst_addr, rdma_cm_id, route.addr.dst_storage)
FIELD2(rn_cm_id, route.sgid, rdma_cm_id, route.addr.addr.ibaddr.sgid)
FIELD2(rn_cm_id, route.dgid, rdma_cm_id, route.addr.addr.ibaddr.dgid)
FIELD2(rn_cm_id, route.pkey, rdma_cm_id, route.addr.addr.ibaddr.pkey)
FIELD(rn_cm_id, rdma_cm_id, route.path_rec)
FIELD(rn_cm_id, rdma_cm_id, route.num_paths)
FIELD(rn_cm_id, rdma_cm_id, ps)
FIELD(rn_cm_id, rdma_cm_id, port_num)

SAME_SIZE(rn_conn_param, rdma_conn_param)
FIELD(rn_conn_param, rdma_conn_param, private_data)
FIELD(rn_conn_param, rdma_conn_param, private_data_len)
FIELD(rn_conn_param, rdma_conn_param, responder_resources)
FIELD(rn_conn_param, rdma_conn_param, initiator_depth)
FIELD(rn_conn_param, rdma_conn_param, flow_control)
FIELD(rn_conn_param, rdma_conn_param, retry_count)
FIELD(rn_conn_param, rdma_conn_param, rnr_retry_count)
FIELD(rn_conn_param, rdma_conn_param, srq)
FIELD(rn_conn_param, rdma_conn_param, qp_num)

BEGINNING(rn_cm_event, rdma_cm_event)
FIELD(rn_cm_event, rdma_cm_event, id)
FIELD(rn_cm_event, rdma_cm_event, listen_id)
FIELD(rn_cm_event, rdma_cm_event, event)
FIELD(rn_cm_event, rdma_cm_event, status)
FIELD2(rn_cm_event, conn, rdma_cm_event, param.conn)

SAME_SIZE(rn_addrinfo, rdma_addrinfo)
FIELD(rn_addrinfo, rdma_addrinfo, ai_flags)
FIELD(rn_addrinfo, rdma_addrinfo, ai_family)
FIELD(rn_addrinfo, rdma_addrinfo, ai_qp_type)
FIELD(rn_addrinfo, rdma_addrinfo, ai_port_space)
FIELD(rn_addrinfo, rdma_addrinfo, ai_src_len)
FIELD(rn_addrinfo, rdma_addrinfo, ai_dst_len)
FIELD(rn_addrinfo, rdma_addrinfo, ai_src_addr)
FIELD(rn_addrinfo, rdma_addrinfo, ai_dst_addr)
FIELD(rn_addrinfo, rdma_addrinfo, ai_route_len)
FIELD(rn_addrinfo, rdma_addrinfo, ai_route)
FIELD(rn_addrinfo, rdma_addrinfo, ai_connect_len)
FIELD(rn_addrinfo, rdma_addrinfo, ai_connect)
FIELD(rn_addrinfo, rdma_addrinfo, ai_next)

/* The functions: with our names turned into theirs, each of our prototypes must
 * be that of the function in the headers. */
#define rn_addrinfo rdma_addrinfo
#define rn_cm_event rdma_cm_event
#define rn_cm_id rdma_cm_id
#define rn_comp_channel ibv_comp_channel
#define rn_conn_param rdma_conn_param
#define rn_context ibv_context
#define rn_cq ibv_cq
#define rn_device_attr ibv_device_attr
#define rn_event_channel rdma_event_channel
#define rn_mr ibv_mr
#define rn_pd ibv_pd
#define rn_port_attr _compat_ibv_port_attr
#define rn_port_space rdma_port_space
#define rn_qp ibv_qp
#define rn_qp_attr ibv_qp_attr
#define rn_qp_init_attr ibv_qp_init_attr
#define rn_recv_wr ibv_recv_wr
#define rn_send_wr ibv_send_wr
#define rn_wc ibv_wc

#define PROTOTYPE(result, name, parameters) \
	__attribute__((unused)) static result(*check_##name) parameters = name;
RN_RDMACM_CALLS(PROTOTYPE)
RN_IBVERBS_CALLS(PROTOTYPE)
#ifdef RAI_SA
RN_RDMACM_OPTIONAL_CALLS(PROTOTYPE)
#endif

/* ... and those of the operations that are called through the table */
__attribute__((unused)) static void operations(struct ibv_context_ops *ops)
{
	int (*poll_cq)(struct ibv_cq *, int, struct ibv_wc *) = ops->poll_cq;
	int (*req_notify_cq)(struct ibv_cq *, int) = ops->req_notify_cq;
	int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **) = ops->post_send;
	int (*post_recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **) = ops->post_recv;

	(void)poll_cq, (void)req_notify_cq, (void)post_send, (void)post_recv;
}
