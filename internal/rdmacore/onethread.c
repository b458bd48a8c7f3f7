//go:build linux && cgo

/*
 * librdmacm 31 to 51 compares two lists of devices to see which have come and
 * gone. It sorts them by 32 bits of the devices' addresses in memory, and then
 * walks through them by all 64. Where two devices lie more than 2 GiB apart these
 * orders may differ, and when one of them is removed the library forgets the
 * other too, for the life of the process: rdma_bind_addr and ADDR_RESOLVED fail
 * with ENODEV. If it forgets all, the next rdma_create_event_channel never
 * returns.
 *
 * libibverbs allocates a device when it first sees it, in the malloc arena of the
 * thread that looks. The arena of the main thread is far from those of the others,
 * while one arena lies close together. So with these libraries every call that may
 * look for devices is made on one thread.
 */

#include "shim.h"

#include <errno.h>
#include <pthread.h>

struct call {
	void (*make)(struct call *);
	void *a, *b;
	int number;
	int result;    /* of functions that return an int */
	void *pointer; /* of those that return a pointer */
	int error;     /* errno */
};

static struct rn_api direct; /* the library's own functions */

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER; /* one caller at a time */
static int started;					  /* under turn */

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t begun = PTHREAD_COND_INITIALIZER, ended = PTHREAD_COND_INITIALIZER;
static struct call *current; /* under mu */

static void *serve(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&mu);
	for (;;) {
		while (!current)
			pthread_cond_wait(&begun, &mu);
		errno = 0;
		current->make(current);
		current->error = errno;
		current = NULL;
		pthread_cond_signal(&ended);
	}
	return NULL;
}

/* The thread handles no signals: Go's runtime does not know it. */
static int start(void)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t before;
	int code = pthread_attr_init(&attr);

	if (code)
		return code;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	code = rn_hold_signals(&before);
	if (!code) {
		code = pthread_create(&thread, &attr, serve, NULL);
		rn_release_signals(&before);
	}
	pthread_attr_destroy(&attr);
	return code;
}

static struct call on_one_thread(struct call call)
{
	call.result = -1;
	call.pointer = NULL;
	pthread_mutex_lock(&turn);
	call.error = started ? 0 : start();
	if (!call.error) {
		started = 1;
		pthread_mutex_lock(&mu);
		current = &call;
		pthread_cond_signal(&begun);
		while (current)
			pthread_cond_wait(&ended, &mu);
		pthread_mutex_unlock(&mu);
	}
	pthread_mutex_unlock(&turn);
	errno = call.error;
	return call;
}

/* The calls that look for devices: the first of all, the one that is there for
 * it, and those by which an identifier gets to know its device. */

static void make_create_event_channel(struct call *c)
{
	c->pointer = direct.rdma_create_event_channel();
}

static struct rn_event_channel *create_event_channel(void)
{
	return on_one_thread((struct call){ .make = make_create_event_channel }).pointer;
}

static void make_get_devices(struct call *c)
{
	c->pointer = direct.rdma_get_devices(c->a);
}

static struct rn_context **get_devices(int *n)
{
	return on_one_thread((struct call){ .make = make_get_devices, .a = n }).pointer;
}

static void make_bind_addr(struct call *c)
{
	c->result = direct.rdma_bind_addr(c->a, c->b);
}

static int bind_addr(struct rn_cm_id *id, struct sockaddr *addr)
{
	return on_one_thread((struct call){ .make = make_bind_addr, .a = id, .b = addr }).result;
}

static void make_listen(struct call *c)
{
	c->result = direct.rdma_listen(c->a, c->number);
}

static int listen_on(struct rn_cm_id *id, int backlog)
{
	return on_one_thread((struct call){ .make = make_listen, .a = id, .number = backlog }).result;
}

static void make_get_cm_event(struct call *c)
{
	c->result = direct.rdma_get_cm_event(c->a, c->b);
}

static int get_cm_event(struct rn_event_channel *channel, struct rn_cm_event **event)
{
	return on_one_thread((struct call){ .make = make_get_cm_event, .a = channel, .b = event }).result;
}

void rn_use_one_thread(struct rn_api *api)
{
	direct = *api;
	api->rdma_create_event_channel = create_event_channel;
	api->rdma_get_devices = get_devices;
	api->rdma_bind_addr = bind_addr;
	api->rdma_listen = listen_on;
	api->rdma_get_cm_event = get_cm_event;
}
