//go:build linux && cgo

/*
 * The data path: one crossing posts a batch, one polls a batch. The structures
 * of the libraries have pointers in them, which Go's must not; so they are made
 * here, on the stack, a chunk at a time.
 */

#include "shim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

static const int opcodes[] = {
	[GO_OP_SEND] = RN_WR_SEND,
	[GO_OP_WRITE] = RN_WR_RDMA_WRITE,
	[GO_OP_WRITE_IMM] = RN_WR_RDMA_WRITE_WITH_IMM,
	[GO_OP_READ] = RN_WR_RDMA_READ,
};

static unsigned int send_flags(uint8_t flags)
{
	unsigned int out = 0;

	if (flags & GO_SIGNALED)
		out |= RN_SEND_SIGNALED;
	if (flags & GO_INLINE)
		out |= RN_SEND_INLINE;
	if (flags & GO_FENCE)
		out |= RN_SEND_FENCE;
	if (flags & GO_SOLICITED)
		out |= RN_SEND_SOLICITED;
	return out;
}

static uint64_t answer(int taken, int code)
{
	return (uint64_t)(uint32_t)code << 32 | (uint32_t)taken;
}

/* How a driver's answer to a list of n requests is read: the index of the first
 * one that was not taken, or -1 where the driver named none, and its code.
 *
 * The code may be an errno, or one negated (libsiw), or 0 although the list was
 * not taken to its end (libsiw again: the answer to its doorbell replaces the
 * one that the queue is full). A code without a request that was refused means
 * that all are in the queue but the device could not be told (libsiw): they
 * count as taken, since the device may still come to them. */
static uint64_t taken(int done, int n, int bad, int code)
{
	if (bad < 0)
		return answer(done + n, abs(code));
	return answer(done + bad, code ? abs(code) : ENOMEM);
}

uint64_t rn_post_send(struct rn_qp *qp, const struct rn_go_send_wr *wr, int n)
{
	struct rn_send_wr list[RN_BATCH], *bad;
	struct rn_sge sge[RN_BATCH][2];
	int done, i, count, code;

	for (done = 0; done < n; done += count) {
		count = n - done < RN_BATCH ? n - done : RN_BATCH;
		for (i = 0; i < count; i++) {
			const struct rn_go_send_wr *from = &wr[done + i];
			struct rn_send_wr *to = &list[i];

			if (from->opcode >= sizeof opcodes / sizeof *opcodes || from->num_sge > 2)
				return answer(done, EINVAL);
			to->wr_id = from->id;
			to->next = i + 1 < count ? to + 1 : NULL;
			to->sg_list = sge[i];
			to->num_sge = from->num_sge;
			to->opcode = opcodes[from->opcode];
			to->send_flags = send_flags(from->flags);
			to->imm_data = htonl(from->imm);
			to->remote_addr = from->remote_addr;
			to->rkey = from->rkey;
			sge[i][0] = from->sge[0];
			sge[i][1] = from->sge[1];
		}
		bad = NULL;
		code = qp->context->ops.post_send(qp, list, &bad);
		if (code || bad)
			return taken(done, count, bad ? (int)(bad - list) : -1, code);
	}
	return answer(n, 0);
}

uint64_t rn_post_recv(struct rn_qp *qp, const struct rn_go_recv_wr *wr, int n)
{
	struct rn_recv_wr list[RN_BATCH], *bad;
	struct rn_sge sge[RN_BATCH];
	int done, i, count, code;

	for (done = 0; done < n; done += count) {
		count = n - done < RN_BATCH ? n - done : RN_BATCH;
		for (i = 0; i < count; i++) {
			sge[i] = wr[done + i].sge;
			list[i] = (struct rn_recv_wr){
				.wr_id = wr[done + i].id,
				.next = i + 1 < count ? &list[i + 1] : NULL,
				.sg_list = &sge[i],
				.num_sge = sge[i].length ? 1 : 0,
			};
		}
		bad = NULL;
		code = qp->context->ops.post_recv(qp, list, &bad);
		if (code || bad)
			return taken(done, count, bad ? (int)(bad - list) : -1, code);
	}
	return answer(n, 0);
}

static uint32_t wc_opcode(int opcode)
{
	switch (opcode) {
	case RN_WC_SEND:
		return GO_WC_SEND;
	case RN_WC_RDMA_WRITE:
		return GO_WC_WRITE;
	case RN_WC_RDMA_READ:
		return GO_WC_READ;
	case RN_WC_RECV:
		return GO_WC_RECV;
	case RN_WC_RECV_RDMA_WITH_IMM:
		return GO_WC_RECV_IMM;
	}
	return GO_WC_OTHER;
}

int rn_poll(struct rn_cq *cq, struct rn_go_wc *wc, int n)
{
	struct rn_wc list[RN_BATCH];
	int done, i, count, got;

	for (done = 0; done < n; done += got) {
		count = n - done < RN_BATCH ? n - done : RN_BATCH;
		got = cq->context->ops.poll_cq(cq, count, list);
		if (got < 0) {
			if (done) /* a failure that lasts is seen at the next poll */
				return done;
			return got == -1 ? -EIO : got;
		}
		for (i = 0; i < got; i++)
			wc[done + i] = (struct rn_go_wc){
				.id = list[i].wr_id,
				.status = (uint32_t)list[i].status,
				.opcode = wc_opcode(list[i].opcode),
				.vendor_err = list[i].vendor_err,
				.byte_len = list[i].byte_len,
				.imm = list[i].wc_flags & RN_WC_WITH_IMM ? ntohl(list[i].imm_data) : 0,
			};
		if (got < count)
			return done + got;
	}
	return done;
}

int rn_arm(struct rn_cq *cq)
{
	return abs(cq->context->ops.req_notify_cq(cq, 0));
}

int rn_drain(struct rn_cq *cq, unsigned int most, unsigned int *own, unsigned int *others)
{
	struct rn_cq *from;
	void *context;
	unsigned int n = 0;

	while (n < most) {
		errno = 0;
		if (!rn_api.ibv_get_cq_event(cq->channel, &from, &context)) {
			++*(from == cq ? own : others);
			n++;
			continue;
		}
		if (errno == EINTR)
			continue;
		if (n || errno == EAGAIN)
			break;
		return errno ? -errno : -EIO;
	}
	return (int)n;
}
