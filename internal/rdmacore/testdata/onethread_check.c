/*
 * Calls that look for devices, from many threads at once, on a library that notes
 * which thread it is called on. TestOneThreadInC compiles it and runs it.
 */
#include "../signal.c"
#include "../onethread.c"

#include <stdio.h>
#include <stdlib.h>

struct rn_api rn_api;

#define CHECK(what, ok)                                          \
	do {                                                     \
		if (!(ok)) {                                     \
			printf("line %d: %s\n", __LINE__, what); \
			exit(1);                                 \
		}                                                \
	} while (0)

static pthread_t looks; /* the one thread */
static int calls;	/* without a lock: one call at a time */

static void note(void)
{
	if (!calls++)
		looks = pthread_self();
	CHECK("calls on two threads", pthread_equal(looks, pthread_self()));
}

static struct rn_event_channel *fake_create(void)
{
	note();
	errno = ENODEV;
	return NULL;
}

static struct rn_context **fake_devices(int *n)
{
	note();
	*n = 3;
	return (struct rn_context **)n;
}

static int fake_bind(struct rn_cm_id *id, struct sockaddr *addr)
{
	note();
	errno = EADDRINUSE;
	return (void *)id == (void *)addr ? 0 : -1;
}

static int fake_listen(struct rn_cm_id *id, int backlog)
{
	(void)id;
	note();
	return backlog;
}

static int fake_event(struct rn_event_channel *channel, struct rn_cm_event **event)
{
	note();
	*event = (struct rn_cm_event *)channel;
	return 0;
}

enum { THREADS = 8, ROUNDS = 200 };

static void *caller(void *unused)
{
	int i, n, id, addr;
	struct rn_cm_event *event;

	(void)unused;
	for (i = 0; i < ROUNDS; i++) {
		errno = 0;
		CHECK("a failed pointer", !rn_api.rdma_create_event_channel() && errno == ENODEV);
		CHECK("a pointer", rn_api.rdma_get_devices(&n) == (void *)&n && n == 3);
		CHECK("a failed int", rn_api.rdma_bind_addr((void *)&id, (void *)&addr) == -1 && errno == EADDRINUSE);
		CHECK("an int", rn_api.rdma_bind_addr((void *)&id, (void *)&id) == 0);
		CHECK("a number", rn_api.rdma_listen((void *)&id, i) == i);
		CHECK("an event", !rn_api.rdma_get_cm_event((void *)&id, &event) && (void *)event == (void *)&id);
		CHECK("on the caller's thread", !pthread_equal(looks, pthread_self()));
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	int i;

	rn_api.rdma_create_event_channel = fake_create;
	rn_api.rdma_get_devices = fake_devices;
	rn_api.rdma_bind_addr = fake_bind;
	rn_api.rdma_listen = fake_listen;
	rn_api.rdma_get_cm_event = fake_event;
	rn_use_one_thread(&rn_api);
	for (i = 0; i < THREADS; i++)
		CHECK("pthread_create", !pthread_create(&threads[i], NULL, caller, NULL));
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	CHECK("calls are missing", calls == THREADS * ROUNDS * 6);
	return 0;
}
