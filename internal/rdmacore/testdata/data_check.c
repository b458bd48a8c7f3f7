/*
 * The data path against drivers that answer in all the ways that drivers do.
 * TestDataPathInC compiles it and runs it.
 */
#include "../data.c"

#include <stdio.h>
#include <string.h>

struct rn_api rn_api;

static int failures;

#define CHECK(what, got, want)                                                         \
	do {                                                                           \
		long long g = (long long)(got), w = (long long)(want);                 \
		if (g != w) {                                                          \
			printf("%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, what, g, w); \
			failures++;                                                    \
		}                                                                      \
	} while (0)

/* The driver: it takes requests until there are room of them, and then answers
 * code, naming the request that it refuses or not. */
static struct {
	int room, code, names_bad, calls;
	int n;
	struct rn_send_wr send[300];
	struct rn_recv_wr recv[300];
	struct rn_sge sge[300][2];
} driver;

static void reset(int room, int code, int names_bad)
{
	memset(&driver, 0, sizeof driver);
	driver.room = room;
	driver.code = code;
	driver.names_bad = names_bad;
}

static int post_send(struct rn_qp *qp, struct rn_send_wr *wr, struct rn_send_wr **bad)
{
	(void)qp;
	driver.calls++;
	for (; wr; wr = wr->next) {
		if (driver.n == driver.room) {
			if (driver.names_bad)
				*bad = wr;
			return driver.code;
		}
		memcpy(driver.sge[driver.n], wr->sg_list, (size_t)wr->num_sge * sizeof *wr->sg_list);
		driver.send[driver.n++] = *wr;
	}
	return 0;
}

static int post_recv(struct rn_qp *qp, struct rn_recv_wr *wr, struct rn_recv_wr **bad)
{
	(void)qp;
	driver.calls++;
	for (; wr; wr = wr->next) {
		if (driver.n == driver.room) {
			if (driver.names_bad)
				*bad = wr;
			return driver.code;
		}
		memcpy(driver.sge[driver.n], wr->sg_list, (size_t)wr->num_sge * sizeof *wr->sg_list);
		driver.recv[driver.n++] = *wr;
	}
	return 0;
}

static int ready, poll_code;

static int poll_cq(struct rn_cq *cq, int n, struct rn_wc *wc)
{
	int i;

	(void)cq;
	if (!ready && poll_code)
		return poll_code;
	for (i = 0; i < n && ready; i++, ready--)
		wc[i] = (struct rn_wc){
			.wr_id = (uint64_t)ready, .status = 12, .opcode = RN_WC_RECV_RDMA_WITH_IMM,
			.vendor_err = 7, .byte_len = 9, .imm_data = htonl(0x01020304),
			.wc_flags = RN_WC_WITH_IMM,
		};
	return i;
}

static int arm_code;

static int req_notify_cq(struct rn_cq *cq, int solicited_only)
{
	(void)cq;
	CHECK("solicited_only", solicited_only, 0);
	return arm_code;
}

static struct rn_context context = {
	.ops = { .post_send = post_send, .post_recv = post_recv, .poll_cq = poll_cq,
		 .req_notify_cq = req_notify_cq },
};
static struct rn_qp qp = { .context = &context };
static struct rn_cq cq = { .context = &context };

#define TAKEN(answer) ((uint32_t)(answer))
#define CODE(answer) ((uint32_t)((answer) >> 32))

static void check_posting(void)
{
	static const struct { int room, code, names_bad, n, taken, want; } t[] = {
		{ 300, 0, 0, 1, 1, 0 },
		{ 300, 0, 0, RN_BATCH, RN_BATCH, 0 },
		{ 300, 0, 0, RN_BATCH + 1, RN_BATCH + 1, 0 },
		{ 300, 0, 0, 5 * RN_BATCH - 1, 5 * RN_BATCH - 1, 0 },
		{ 0, ENOMEM, 1, 8, 0, ENOMEM },
		{ 3, ENOMEM, 1, 8, 3, ENOMEM },
		{ 3, -ENOMEM, 1, 8, 3, ENOMEM },  /* libsiw */
		{ 3, 0, 1, 8, 3, ENOMEM },        /* libsiw: full, and its doorbell answers 0 */
		{ 3, -ENOTCONN, 0, 8, 8, ENOTCONN }, /* all are in the queue; so they count */
		{ 40, EINVAL, 1, 100, 40, EINVAL },
		{ RN_BATCH, EINVAL, 1, 100, RN_BATCH, EINVAL },
		{ 40, -EIO, 0, 100, 2 * RN_BATCH, EIO },
	};
	static struct rn_go_send_wr send[300];
	static struct rn_go_recv_wr recv[300];
	uint64_t answer;
	size_t i;
	int j;

	for (j = 0; j < 300; j++) {
		send[j] = (struct rn_go_send_wr){
			.id = (uint64_t)j, .remote_addr = 1000 + (uint64_t)j, .rkey = 5, .imm = 0x01020304,
			.opcode = (uint8_t)(j % 4), .flags = (uint8_t)(j % 16), .num_sge = (uint8_t)(j % 3),
			.sge = { { .addr = (uint64_t)j, .length = 1, .lkey = 2 }, { .addr = 99, .length = 3, .lkey = 4 } },
		};
		recv[j] = (struct rn_go_recv_wr){
			.id = (uint64_t)j, .sge = { .addr = (uint64_t)j, .length = (uint32_t)(j % 2), .lkey = 6 },
		};
	}
	for (i = 0; i < sizeof t / sizeof *t; i++) {
		reset(t[i].room, t[i].code, t[i].names_bad);
		answer = rn_post_send(&qp, send, t[i].n);
		CHECK("taken of sends", TAKEN(answer), t[i].taken);
		CHECK("code of sends", CODE(answer), t[i].want);

		reset(t[i].room, t[i].code, t[i].names_bad);
		answer = rn_post_recv(&qp, recv, t[i].n);
		CHECK("taken of receives", TAKEN(answer), t[i].taken);
		CHECK("code of receives", CODE(answer), t[i].want);
	}

	reset(300, 0, 0);
	rn_post_send(&qp, send, 100);
	CHECK("calls", driver.calls, 4);
	CHECK("requests", driver.n, 100);
	for (j = 0; j < driver.n; j++) {
		static const int opcode[] = { RN_WR_SEND, RN_WR_RDMA_WRITE, RN_WR_RDMA_WRITE_WITH_IMM, RN_WR_RDMA_READ };
		unsigned int flags = (j & 1 ? RN_SEND_SIGNALED : 0u) | (j & 2 ? RN_SEND_INLINE : 0u) |
				     (j & 4 ? RN_SEND_FENCE : 0u) | (j & 8 ? RN_SEND_SOLICITED : 0u);

		CHECK("wr_id", driver.send[j].wr_id, j);
		CHECK("opcode", driver.send[j].opcode, opcode[j % 4]);
		CHECK("send_flags", driver.send[j].send_flags, flags);
		CHECK("imm_data", ntohl(driver.send[j].imm_data), 0x01020304);
		CHECK("remote_addr", driver.send[j].remote_addr, 1000 + j);
		CHECK("rkey", driver.send[j].rkey, 5);
		CHECK("num_sge", driver.send[j].num_sge, j % 3);
		if (j % 3 > 0)
			CHECK("sge", driver.sge[j][0].addr, j);
		if (j % 3 > 1)
			CHECK("sge", driver.sge[j][1].length, 3);
	}
	reset(300, 0, 0);
	rn_post_recv(&qp, recv, 100);
	for (j = 0; j < driver.n; j++) {
		CHECK("wr_id", driver.recv[j].wr_id, j);
		CHECK("num_sge", driver.recv[j].num_sge, j % 2);
		if (j % 2)
			CHECK("sge", driver.sge[j][0].lkey, 6);
	}

	/* what Go must not ask for */
	reset(300, 0, 0);
	send[50].opcode = 4;
	answer = rn_post_send(&qp, send, 100);
	CHECK("taken", TAKEN(answer), RN_BATCH);
	CHECK("code", CODE(answer), EINVAL);
	send[50].opcode = 0;
	send[50].num_sge = 3;
	CHECK("code", CODE(rn_post_send(&qp, send, 100)), EINVAL);
}

static void check_polling(void)
{
	static const struct { int ready, code, n, want; } t[] = {
		{ 0, 0, 16, 0 }, { 5, 0, 16, 5 }, { 16, 0, 16, 16 }, { 100, 0, 16, 16 },
		{ 100, 0, 100, 100 }, { RN_BATCH, 0, 100, RN_BATCH }, { 0, -EIO, 16, -EIO },
		{ 0, -1, 16, -EIO }, { RN_BATCH, -EINVAL, 100, RN_BATCH },
	};
	static struct rn_go_wc wc[300];
	size_t i;
	int j, got;

	for (i = 0; i < sizeof t / sizeof *t; i++) {
		ready = t[i].ready;
		poll_code = t[i].code;
		got = rn_poll(&cq, wc, t[i].n);
		CHECK("completions", got, t[i].want);
		for (j = 0; j < got; j++) {
			CHECK("id", wc[j].id, t[i].ready - j);
			CHECK("status", wc[j].status, 12);
			CHECK("opcode", wc[j].opcode, GO_WC_RECV_IMM);
			CHECK("vendor_err", wc[j].vendor_err, 7);
			CHECK("byte_len", wc[j].byte_len, 9);
			CHECK("imm", wc[j].imm, 0x01020304);
		}
	}
	CHECK("opcode", wc_opcode(RN_WC_SEND), GO_WC_SEND);
	CHECK("opcode", wc_opcode(RN_WC_RDMA_WRITE), GO_WC_WRITE);
	CHECK("opcode", wc_opcode(RN_WC_RDMA_READ), GO_WC_READ);
	CHECK("opcode", wc_opcode(RN_WC_RECV), GO_WC_RECV);
	CHECK("opcode", wc_opcode(77), GO_WC_OTHER);
	arm_code = -EIO;
	CHECK("arming", rn_arm(&cq), EIO);
	arm_code = EINVAL;
	CHECK("arming", rn_arm(&cq), EINVAL);
	arm_code = 0;
	CHECK("arming", rn_arm(&cq), 0);
}

/* events: how many there are, and what the channel answers then */
static int events, events_errno;
static struct rn_cq other;

static int get_cq_event(struct rn_comp_channel *channel, struct rn_cq **from, void **ctx)
{
	(void)channel;
	if (!events) {
		errno = events_errno;
		return -1;
	}
	if (events == 2 && events_errno == EINTR) { /* once */
		errno = EINTR;
		events_errno = EAGAIN;
		return -1;
	}
	events--;
	*from = events % 2 ? &other : &cq;
	*ctx = NULL;
	return 0;
}

static void check_draining(void)
{
	static const struct { int events, code, most, want; } t[] = {
		{ 0, EAGAIN, 1, 0 }, { 1, EAGAIN, 9, 1 }, { 9, EAGAIN, 99, 9 }, { 3, EINTR, 9, 3 },
		{ 0, EIO, 1, -EIO }, { 0, 0, 1, -EIO }, { 2, EIO, 9, 2 },
		/* not one more than asked for: what the channel says then does not matter */
		{ 1, EIO, 1, 1 }, { 9, EIO, 3, 3 }, { 3, EINTR, 3, 3 }, { 1, EIO, 0, 0 },
	};
	size_t i;

	rn_api.ibv_get_cq_event = get_cq_event;
	for (i = 0; i < sizeof t / sizeof *t; i++) {
		events = t[i].events;
		events_errno = t[i].code;
		unsigned int own = 0, others = 0;
		int k;

		CHECK("events", rn_drain(&cq, (unsigned int)t[i].most, &own, &others), t[i].want);
		if (t[i].want > 0) {
			CHECK("all events", own + others, t[i].want);
			for (k = t[i].events - 1; k >= t[i].events - t[i].want; k--)
				others -= (unsigned int)k % 2;
			CHECK("events of the other queue, too many by", others, 0);
		}
	}
}

int main(void)
{
	check_posting();
	check_polling();
	check_draining();
	return failures != 0;
}
