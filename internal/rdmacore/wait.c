//go:build linux && cgo

/*
 * Waiting for completions: on the caller's thread for a short time, or in Go's
 * poller for as long as it takes.
 */

#define _GNU_SOURCE

#include "shim.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum {
	LOOK_EVERY = 16,     /* polls between two looks at the clock */
	YIELD_EVERY = 4000, /* ns of a spin between two chances for other threads */
};

static struct rn_watch *watch_of(uintptr_t watch) { return (struct rn_watch *)watch; }

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int woken(const struct rn_watch *w)
{
	return __atomic_load_n(&w->woken, __ATOMIC_ACQUIRE);
}

int rn_watch(struct rn_cq *cq, struct rn_watch **watch)
{
	struct rn_watch *w = calloc(1, sizeof *w);

	if (!w)
		return ENOMEM;
	w->cq = cq;
	w->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (w->epoll < 0) {
		int code = errno;

		free(w);
		return code;
	}
	*watch = w;
	return 0;
}

static int control(struct rn_watch *w, int attach)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };

	if (w->attached == attach)
		return 0;
	if (epoll_ctl(w->epoll, attach ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, w->cq->channel->fd, &event))
		return errno;
	w->attached = attach;
	return 0;
}

int rn_attach(uintptr_t watch)
{
	return control(watch_of(watch), 1);
}

int rn_watch_poll(uintptr_t watch, int n)
{
	struct rn_watch *w = watch_of(watch);

	return rn_poll(w->cq, w->wc, n < RN_BATCH ? n : RN_BATCH);
}

static int arm(struct rn_watch *w)
{
	int code = rn_arm(w->cq);

	if (!code)
		w->arms++;
	return code;
}

int rn_watch_arm(uintptr_t watch)
{
	return arm(watch_of(watch));
}

/* Takes events, and does not look for more than can be there: each arming makes
 * one at most. When the channel is empty, only the last arming may still make
 * one. */
static int take(struct rn_watch *w)
{
	int n = rn_drain(w->cq, w->arms);

	if (n < 0)
		return n;
	w->unacked += n;
	w->arms = (unsigned int)n < w->arms ? 1 : 0;
	return n;
}

int rn_watch_take(uintptr_t watch)
{
	return take(watch_of(watch));
}

/* Polls for so many nanoseconds. Now and then it gives way: what the completion
 * needs to come about, a thread of the kernel's or the peer, may be waiting for
 * this very processor. */
static int spin_for(struct rn_watch *w, int n, int64_t spin)
{
	int64_t start = now(), t, yielded = start;
	int i, got;

	for (i = 1;; i++) {
		got = rn_poll(w->cq, w->wc, n);
		if (got || woken(w))
			return got;
		if (i % LOOK_EVERY)
			continue;
		t = now();
		if (t - start >= spin)
			return 0;
		if (t - yielded >= YIELD_EVERY) {
			sched_yield();
			yielded = t;
		}
	}
}

/* Sleeps until the channel has an event, for so many nanoseconds at most. The
 * channel is not in Go's poller meanwhile: the thread that waits there would be
 * woken too, for nothing. */
static int block_for(struct rn_watch *w, int n, int64_t block)
{
	struct pollfd channel = { .fd = w->cq->channel->fd, .events = POLLIN };
	int64_t end = now() + block, left;
	struct timespec t = { 0, 0 };
	int code, got, ready;

	code = control(w, 0);
	if (code)
		return -code;
	for (;;) {
		code = arm(w);
		if (code)
			return -code;
		do {
			got = rn_poll(w->cq, w->wc, n);
			left = end - now();
			if (got || woken(w) || left <= 0)
				return got;
			t.tv_nsec = left;
			ready = ppoll(&channel, 1, &t, NULL);
		} while (!ready || (ready < 0 && errno == EINTR));
		if (ready < 0)
			return -errno;
		got = take(w);
		if (got < 0)
			return got;
		got = rn_poll(w->cq, w->wc, n);
		if (got)
			return got;
	}
}

int rn_linger(uintptr_t watch, int n, int64_t spin, int64_t block)
{
	struct rn_watch *w = watch_of(watch);
	int got = 0;

	w->slept = 0;
	if (n > RN_BATCH)
		n = RN_BATCH;
	if (spin)
		got = spin_for(w, n, spin);
	if (got || !block || woken(w))
		return got;
	w->slept = 1;
	return block_for(w, n, block);
}
