//go:build linux && cgo

#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static int silent_or(int code)
{
	return code ? code : RN_SILENT;
}

int rn_query_device(struct rn_context *verbs, struct rn_limits *out)
{
	struct rn_device_attr attr;
	struct rn_port_attr port;
	int code;

	memset(&attr, 0, sizeof attr);
	code = rn_api.ibv_query_device(verbs, &attr);
	if (code)
		return code;
	*out = (struct rn_limits){
		.max_qp_wr = attr.max_qp_wr,
		.max_sge = attr.max_sge,
		.max_cqe = attr.max_cqe,
		.max_qp_rd_atom = attr.max_qp_rd_atom,
		.max_qp_init_rd_atom = attr.max_qp_init_rd_atom,
		.vendor_id = attr.vendor_id,
	};
	memset(&port, 0, sizeof port);
	if (attr.phys_port_cnt) {
		code = rn_api.ibv_query_port(verbs, 1, &port);
		out->link_layer = port.link_layer;
	}
	return code;
}

/* rdma_get_devices takes a reference to every device, and rdma_free_devices
 * gives back those of the list that it is handed: so two lists are made of one,
 * and all devices but verbs given back at once. */
int rn_hold_device(struct rn_context *verbs, struct rn_context ***hold)
{
	struct rn_context **all, **mine;
	int i, n, found = 0;

	mine = calloc(2, sizeof *mine);
	if (!mine)
		return ENOMEM;
	errno = 0;
	all = rn_api.rdma_get_devices(&n);
	if (!all) {
		free(mine);
		return silent_or(errno);
	}
	for (i = 0; i < n; i++) {
		if (!found && all[i] == verbs)
			found = 1;
		else
			all[i - found] = all[i];
	}
	all[n - found] = NULL;
	rn_api.rdma_free_devices(all);
	if (!found) { /* gone in the meantime */
		free(mine);
		return ENODEV;
	}
	mine[0] = verbs;
	*hold = mine;
	return 0;
}

void rn_release_device(struct rn_context **hold)
{
	rn_api.rdma_free_devices(hold);
}

int rn_list_devices(struct rn_context ***list, int *n)
{
	errno = 0;
	*list = rn_api.rdma_get_devices(n);
	return *list ? 0 : silent_or(errno);
}

void rn_sync_devices(void)
{
	struct rn_context **all = rn_api.rdma_get_devices(NULL);

	if (all)
		rn_api.rdma_free_devices(all);
}

int rn_alloc_pd(struct rn_context *verbs, struct rn_pd **pd)
{
	errno = 0;
	*pd = rn_api.ibv_alloc_pd(verbs);
	return *pd ? 0 : silent_or(errno);
}

int rn_dealloc_pd(struct rn_pd *pd)
{
	return rn_api.ibv_dealloc_pd(pd);
}

int rn_reg_mr(struct rn_pd *pd, void *addr, size_t len, int access, struct rn_mr **mr)
{
	errno = 0;
	*mr = rn_api.ibv_reg_mr(pd, addr, len, access);
	return *mr ? 0 : silent_or(errno);
}

int rn_dereg_mr(struct rn_mr *mr)
{
	return rn_api.ibv_dereg_mr(mr);
}

int rn_create_cq(struct rn_context *verbs, int depth, struct rn_cq **cq)
{
	struct rn_comp_channel *channel;
	int code, flags;

	errno = 0;
	channel = rn_api.ibv_create_comp_channel(verbs);
	if (!channel)
		return silent_or(errno);
	flags = fcntl(channel->fd, F_GETFL);
	if (flags < 0 || fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) < 0) {
		code = errno;
		goto fail;
	}
	errno = 0;
	*cq = rn_api.ibv_create_cq(verbs, depth, NULL, channel, 0);
	if (*cq)
		return 0;
	code = silent_or(errno);
fail:
	rn_api.ibv_destroy_comp_channel(channel);
	return code;
}

int rn_create_sends_cq(struct rn_cq *cq, int depth, struct rn_cq **sends)
{
	errno = 0;
	*sends = rn_api.ibv_create_cq(cq->context, depth, NULL, cq->channel, 0);
	return *sends ? 0 : silent_or(errno);
}

static int destroy_queue(struct rn_cq *cq, unsigned int unacked)
{
	if (unacked)
		rn_api.ibv_ack_cq_events(cq, unacked);
	return rn_api.ibv_destroy_cq(cq);
}

int rn_destroy_cq(struct rn_cq *cq, unsigned int unacked, struct rn_cq *sends, unsigned int unacked_sends)
{
	struct rn_comp_channel *channel = cq->channel;
	int code = sends ? destroy_queue(sends, unacked_sends) : 0;

	if (code)
		return code;
	code = destroy_queue(cq, unacked);
	if (code)
		return code;
	return rn_api.ibv_destroy_comp_channel(channel);
}

struct rn_cq *rn_guard_cq(struct rn_context *verbs, int depth)
{
	return rn_api.ibv_create_cq(verbs, depth, NULL, NULL, 0);
}

void rn_destroy_guard_cq(struct rn_cq *cq)
{
	rn_api.ibv_destroy_cq(cq);
}

int rn_create_qp(struct rn_cm_id *id, struct rn_pd *pd, struct rn_cq *cq, struct rn_cq *sends,
		 struct rn_qp_ask *ask, struct rn_qp **qp)
{
	struct rn_qp_init_attr attr = {
		.send_cq = sends ? sends : cq,
		.recv_cq = cq,
		.cap = {
			.max_send_wr = (uint32_t)ask->send_depth,
			.max_recv_wr = (uint32_t)ask->recv_depth,
			.max_send_sge = (uint32_t)ask->send_sge,
			.max_recv_sge = 1,
			.max_inline_data = (uint32_t)ask->max_inline,
		},
		.qp_type = RN_QPT_RC,
		.sq_sig_all = ask->signal_all,
	};

	errno = 0;
	if (rn_api.rdma_create_qp(id, pd, &attr))
		return silent_or(errno);
	ask->max_inline = (int)attr.cap.max_inline_data;
	*qp = id->qp;
	return 0;
}

void rn_detach_qp(struct rn_cm_id *id)
{
	id->qp = NULL;
}

int rn_destroy_qp(struct rn_qp *qp)
{
	return rn_api.ibv_destroy_qp(qp);
}

int rn_qp_set_error(struct rn_qp *qp)
{
	struct rn_qp_attr attr = { .qp_state = RN_QPS_ERR };

	return rn_api.ibv_modify_qp(qp, &attr, RN_QP_STATE);
}
