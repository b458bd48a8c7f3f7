//go:build linux && cgo

#include "shim.h"

#include <errno.h>
#include <string.h>

/* What a call that returns -1 and sets errno has to say. */
static int code_of(int result)
{
	if (!result)
		return 0;
	return errno ? errno : RN_SILENT;
}

int rn_create_channel(struct rn_event_channel **channel)
{
	errno = 0;
	*channel = rn_api.rdma_create_event_channel();
	return code_of(*channel ? 0 : -1);
}

void rn_destroy_channel(struct rn_event_channel *channel)
{
	rn_api.rdma_destroy_event_channel(channel);
}

int rn_next_event(struct rn_event_channel *channel, uintptr_t request_handle, struct rn_event *out)
{
	struct rn_cm_event *event;
	int result;

	errno = 0;
	result = rn_api.rdma_get_cm_event(channel, &event);
	if (result)
		return code_of(result);

	memset(out, 0, offsetof(struct rn_event, private_data));
	out->type = event->event;
	out->status = event->status;
	/* Where the library itself fails while it processes an event, it puts
	 * -1 for the status, and the reason in errno. */
	if (out->status == -1 && errno > 0)
		out->status = -errno;

	if (event->event == RN_EVENT_CONNECT_REQUEST) {
		out->handle = (uintptr_t)event->listen_id->context;
		out->request = event->id;
		/* until here it was the listener's, inherited */
		event->id->context = (void *)request_handle;
	} else {
		out->handle = (uintptr_t)event->id->context;
	}

	out->responder_resources = event->conn.responder_resources;
	out->initiator_depth = event->conn.initiator_depth;
	out->flow_control = event->conn.flow_control;
	out->retry_count = event->conn.retry_count;
	out->rnr_retry_count = event->conn.rnr_retry_count;
	if (event->conn.private_data) {
		out->private_data_len = event->conn.private_data_len;
		memcpy(out->private_data, event->conn.private_data, out->private_data_len);
	}
	rn_api.rdma_ack_cm_event(event);
	return 0;
}

int rn_create_id(struct rn_event_channel *channel, uintptr_t handle, struct rn_cm_id **id)
{
	errno = 0;
	return code_of(rn_api.rdma_create_id(channel, id, (void *)handle, RN_PS_TCP));
}

int rn_destroy_id(struct rn_cm_id *id)
{
	errno = 0;
	return code_of(rn_api.rdma_destroy_id(id));
}

int rn_bind(struct rn_cm_id *id, void *addr, int v6only)
{
	int on = 1, result;

	errno = 0;
	if (v6only) {
		result = rn_api.rdma_set_option(id, RN_OPTION_ID, RN_OPTION_ID_AFONLY, &on, sizeof on);
		if (result)
			return code_of(result);
	}
	return code_of(rn_api.rdma_bind_addr(id, addr));
}

int rn_resolve_addr(struct rn_cm_id *id, void *src, void *dst, int timeout_ms)
{
	errno = 0;
	return code_of(rn_api.rdma_resolve_addr(id, src, dst, timeout_ms));
}

int rn_resolve_route(struct rn_cm_id *id, int timeout_ms)
{
	/* librdmacm looks at the device without checking that there is one */
	if (!id->verbs)
		return EINVAL;
	errno = 0;
	return code_of(rn_api.rdma_resolve_route(id, timeout_ms));
}

int rn_set_path(struct rn_cm_id *id, void *path, size_t len)
{
	errno = 0;
	return code_of(rn_api.rdma_set_option(id, RN_OPTION_IB, RN_OPTION_IB_PATH, path, len));
}

static struct rn_conn_param conn_param(const struct rn_param *param)
{
	return (struct rn_conn_param){
		.private_data = param->private_data,
		.private_data_len = param->private_data_len,
		.responder_resources = param->responder_resources,
		.initiator_depth = param->initiator_depth,
		.flow_control = param->flow_control,
		.retry_count = param->retry_count,
		.rnr_retry_count = param->rnr_retry_count,
	};
}

/*
 * Linux's siw connects TCP inside the call, and any signal that a thread handles
 * calls that off; the kernel then begins the call again, which fails, and the
 * connection that was broken off can cost the listener at the other end its
 * socket. Go's threads get signals at any time (preemption, profiling, the end of
 * a child), so all but our own wait until the call is over.
 */
int rn_connect(struct rn_cm_id *id, const struct rn_param *param)
{
	struct rn_conn_param conn = conn_param(param);
	sigset_t before;
	int code;

	if (!id->verbs)
		return EINVAL;
	code = rn_hold_signals(&before);
	if (code)
		return code;
	errno = 0;
	code = code_of(rn_api.rdma_connect(id, &conn));
	rn_release_signals(&before);
	return code;
}

int rn_listen(struct rn_cm_id *id, int backlog)
{
	errno = 0;
	return code_of(rn_api.rdma_listen(id, backlog));
}

int rn_accept(struct rn_cm_id *id, const struct rn_param *param)
{
	struct rn_conn_param conn = conn_param(param);

	if (!id->verbs)
		return EINVAL;
	errno = 0;
	return code_of(rn_api.rdma_accept(id, &conn));
}

int rn_reject(struct rn_cm_id *id, const void *data, uint8_t len)
{
	errno = 0;
	return code_of(rn_api.rdma_reject(id, data, len));
}

int rn_disconnect(struct rn_cm_id *id)
{
	errno = 0;
	return code_of(rn_api.rdma_disconnect(id));
}

void rn_get_addrs(struct rn_cm_id *id, struct rn_addrs *out)
{
	out->src = id->route.src_addr;
	out->dst = id->route.dst_addr;
	memcpy(out->sgid, id->route.sgid, sizeof out->sgid);
	out->port_num = id->port_num;
}

static struct rn_addrinfo hints(int flags)
{
	return (struct rn_addrinfo){
		.ai_flags = flags,
		.ai_qp_type = RN_QPT_RC,
		.ai_port_space = RN_PS_TCP,
	};
}

int rn_resolve_addrinfo(struct rn_cm_id *id, const char *node, const char *service, int flags)
{
	struct rn_addrinfo ask = hints(flags);

	errno = 0;
	return code_of(rn_api.rdma_resolve_addrinfo(id, node, service, &ask));
}

int rn_query_addrinfo(struct rn_cm_id *id, struct rn_addrinfo **list)
{
	errno = 0;
	return code_of(rn_api.rdma_query_addrinfo(id, list));
}

int rn_getaddrinfo(const char *node, const char *service, int flags, struct rn_addrinfo **list)
{
	struct rn_addrinfo ask = hints(flags);
	int result;

	errno = 0;
	result = rn_api.rdma_getaddrinfo(node, service, &ask, list);
	/* the code of getaddrinfo(3) itself, which leaves in errno what it likes */
	if (result < -1)
		return result;
	return code_of(result);
}

void rn_freeaddrinfo(struct rn_addrinfo *list)
{
	rn_api.rdma_freeaddrinfo(list);
}
