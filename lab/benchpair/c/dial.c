/*
 * Dials and closes in C, to compare with: one connection after the other, as benchpair's dial and
 * accept do it.
 *
 *   dialc cm server ADDRESS PORT     with librdmacm and libibverbs: the calls that a connection of
 *   dialc cm client ADDRESS PORT N   rdmanet is made of, on queues as deep
 *   dialc rs server ADDRESS PORT     with librdmacm's rsockets
 *   dialc rs client ADDRESS PORT N
 *
 * A server ends when it is killed. A client prints the median of the times of dial, of close and of both, in microseconds; the first is
 * not counted. Memory is registered once (cm), as rdmanet keeps it; rsockets register for each.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>

enum { SEND_DEPTH = 256, RECV_DEPTH = 384 + 32, TIMEOUT_MS = 2000 };

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *times, int n)
{
	qsort(times + 1, n - 1, sizeof *times, compare);
	return times[1 + (n - 1) / 2];
}

/* What one connection consists of, beside the identifier. */
struct conn {
	struct rdma_cm_id *id;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
};

static struct rdma_event_channel *events;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static char memory[4 * RECV_DEPTH];

/* expect takes the next event, which must be of the given type. */
static struct rdma_cm_id *expect(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;
	enum rdma_cm_event_type got;

	do {
		if (rdma_get_cm_event(events, &ev))
			die("rdma_get_cm_event");
		id = ev->id;
		got = ev->event;
		rdma_ack_cm_event(ev);
		/* Those of earlier connections. */
	} while (got == RDMA_CM_EVENT_TIMEWAIT_EXIT || (got == RDMA_CM_EVENT_DISCONNECTED && got != type));
	if (got != type) {
		fprintf(stderr, "expected event %d, got %d\n", type, got);
		exit(1);
	}
	return id;
}

/* open_qp makes the queues and posts all receives, as a stream does before it connects. */
static void open_qp(struct conn *c)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = SEND_DEPTH, .max_recv_wr = RECV_DEPTH, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = 64 },
	};
	struct ibv_sge sge;
	struct ibv_recv_wr wr[16], *bad;
	int i, j;

	if (!pd) {
		pd = ibv_alloc_pd(c->id->verbs);
		if (!pd)
			die("ibv_alloc_pd");
		mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
		if (!mr)
			die("ibv_reg_mr");
	}
	c->channel = ibv_create_comp_channel(c->id->verbs);
	if (!c->channel)
		die("ibv_create_comp_channel");
	c->cq = ibv_create_cq(c->id->verbs, SEND_DEPTH + RECV_DEPTH, NULL, c->channel, 0);
	if (!c->cq)
		die("ibv_create_cq");
	attr.send_cq = attr.recv_cq = c->cq;
	if (rdma_create_qp(c->id, pd, &attr))
		die("rdma_create_qp");
	sge = (struct ibv_sge){ .addr = (uintptr_t)memory, .length = 4, .lkey = mr->lkey };
	for (i = 0; i < RECV_DEPTH; i += 16) {
		for (j = 0; j < 16; j++)
			wr[j] = (struct ibv_recv_wr){ .next = j < 15 ? &wr[j + 1] : NULL, .sg_list = &sge, .num_sge = 1 };
		if (ibv_post_recv(c->id->qp, wr, &bad))
			die("ibv_post_recv");
	}
}

static void close_conn(struct conn *c)
{
	rdma_disconnect(c->id); /* fails where the peer was first */
	rdma_destroy_qp(c->id);
	if (ibv_destroy_cq(c->cq))
		die("ibv_destroy_cq");
	if (ibv_destroy_comp_channel(c->channel))
		die("ibv_destroy_comp_channel");
	if (rdma_destroy_id(c->id))
		die("rdma_destroy_id");
}

static struct rdma_conn_param params(void)
{
	static char private_data[40];
	return (struct rdma_conn_param){
		.private_data = private_data, .private_data_len = sizeof private_data,
		.responder_resources = 1, .initiator_depth = 1, .flow_control = 1, .retry_count = 6, .rnr_retry_count = 7,
	};
}

/* The stages of a dial, and the time of each one's end. */
enum { OPEN, ADDR, ROUTE, QP, CONNECT, STAGES };

static void cm_dial(struct sockaddr *addr, struct conn *c, double *ends)
{
	struct rdma_conn_param param = params();

	if (rdma_create_id(events, &c->id, NULL, RDMA_PS_TCP))
		die("rdma_create_id");
	ends[OPEN] = now();
	if (rdma_resolve_addr(c->id, NULL, addr, TIMEOUT_MS))
		die("rdma_resolve_addr");
	expect(RDMA_CM_EVENT_ADDR_RESOLVED);
	ends[ADDR] = now();
	if (rdma_resolve_route(c->id, TIMEOUT_MS))
		die("rdma_resolve_route");
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
	ends[ROUTE] = now();
	open_qp(c);
	ends[QP] = now();
	if (rdma_connect(c->id, &param))
		die("rdma_connect");
	expect(RDMA_CM_EVENT_ESTABLISHED);
	ends[CONNECT] = now();
}

static void cm_serve(struct sockaddr *addr)
{
	struct rdma_cm_id *listener;
	struct rdma_conn_param param = params();

	if (rdma_create_id(events, &listener, NULL, RDMA_PS_TCP))
		die("rdma_create_id");
	if (rdma_bind_addr(listener, addr))
		die("rdma_bind_addr");
	if (rdma_listen(listener, 16))
		die("rdma_listen");
	for (;;) {
		struct conn c = { .id = expect(RDMA_CM_EVENT_CONNECT_REQUEST) };
		open_qp(&c);
		if (rdma_accept(c.id, &param))
			die("rdma_accept");
		expect(RDMA_CM_EVENT_ESTABLISHED);
		expect(RDMA_CM_EVENT_DISCONNECTED);
		close_conn(&c);
	}
}

static int rs_dial(struct sockaddr *addr)
{
	int s = rsocket(AF_INET, SOCK_STREAM, 0);
	if (s < 0)
		die("rsocket");
	if (rconnect(s, addr, sizeof(struct sockaddr_in)))
		die("rconnect");
	return s;
}

static void rs_serve(struct sockaddr *addr)
{
	char buf[16];
	int s, l = rsocket(AF_INET, SOCK_STREAM, 0);

	if (l < 0)
		die("rsocket");
	if (rbind(l, addr, sizeof(struct sockaddr_in)))
		die("rbind");
	if (rlisten(l, 16))
		die("rlisten");
	for (;;) {
		s = raccept(l, NULL, NULL);
		if (s < 0)
			die("raccept");
		/* That one fails is seen at the other end. */
		while (rrecv(s, buf, sizeof buf, 0) > 0)
			;
		rclose(s);
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct sockaddr *addr = (struct sockaddr *)&in;
	struct conn c = { 0 };
	static const char *names[STAGES] = { "open", "addr", "route", "queues", "connect" };
	double *connect, *close, *both, *stages[STAGES], ends[STAGES], t;
	int i, j, n = 0, s = -1, cm, server;

	server = argc > 2 && strcmp(argv[2], "server") == 0;
	if (argc < 5 || inet_pton(AF_INET, argv[3], &in.sin_addr) != 1 || (!server && (argc < 6 || (n = atoi(argv[5])) < 2))) {
		fprintf(stderr, "usage: dialc cm|rs server ADDRESS PORT\n       dialc cm|rs client ADDRESS PORT N (2 or more)\n");
		return 2;
	}
	in.sin_port = htons(atoi(argv[4]));
	cm = strcmp(argv[1], "cm") == 0;
	events = rdma_create_event_channel();
	if (!events)
		die("rdma_create_event_channel");
	if (server) {
		if (cm)
			cm_serve(addr);
		else
			rs_serve(addr);
		return 0;
	}
	connect = calloc(n, sizeof *connect);
	close = calloc(n, sizeof *close);
	both = calloc(n, sizeof *both);
	if (!connect || !close || !both)
		die("calloc");
	for (j = 0; j < STAGES; j++) {
		stages[j] = calloc(n, sizeof *stages[j]);
		if (!stages[j])
			die("calloc");
	}
	for (i = 0; i < n; i++) {
		t = now();
		if (cm)
			cm_dial(addr, &c, ends);
		else
			s = rs_dial(addr);
		connect[i] = now() - t;
		for (j = 0; cm && j < STAGES; j++)
			stages[j][i] = ends[j] - (j ? ends[j - 1] : t);
		if (cm)
			close_conn(&c);
		else if (rclose(s))
			die("rclose");
		both[i] = now() - t;
		close[i] = both[i] - connect[i];
	}
	printf("median %.1f connect %.1f close %.1f\n", median(both, n), median(connect, n), median(close, n));
	if (cm) {
		printf("stages");
		for (j = 0; j < STAGES; j++)
			printf(" %s %.1f", names[j], median(stages[j], n));
		printf("\n");
	}
	return 0;
}
