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
#include <sys/eventfd.h>
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
	return __atomic_load_n(&w->woken, __ATOMIC_SEQ_CST);
}

int rn_watch(struct rn_cq *cq, struct rn_cq *sends, struct rn_watch **watch)
{
	struct rn_watch *w = calloc(1, sizeof *w);

	if (!w)
		return ENOMEM;
	w->cq = cq;
	w->sends = sends;
	w->waker = -1;
	w->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (w->epoll < 0) {
		int code = errno;

		free(w);
		return code;
	}
	*watch = w;
	return 0;
}

void rn_unwatch(struct rn_watch *w)
{
	if (w->waker >= 0)
		close(w->waker);
	free(w);
}

void rn_wake(struct rn_watch *w)
{
	const uint64_t one = 1;

	__atomic_store_n(&w->woken, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&w->asleep, __ATOMIC_SEQ_CST))
		/* It can only fail when it has been written to so often that
		 * the sleeper wakes anyway. */
		(void)!write(w->waker, &one, sizeof one);
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

/* Polls a queue into the watch, behind the got completions, or the error, of another. */
static int poll_more(struct rn_watch *w, struct rn_cq *cq, int got, int n)
{
	int more;

	if (got < 0 || got == n)
		return got;
	more = rn_poll(cq, w->wc + got, n - got);
	if (more < 0 && got)
		return got; /* a failure that lasts is seen at the next poll */
	return more < 0 ? more : got + more;
}

/* Sends come last, when there are no more receives: a send that fails is the end, and
 * what has been received before it is not to be lost for that. */
static int poll_both(struct rn_watch *w, int n)
{
	int got = rn_poll(w->cq, w->wc, n);

	return w->sends ? poll_more(w, w->sends, got, n) : got;
}

/* Polls for what is to end a wait, and if there is some for all. */
static int look(struct rn_watch *w, int n)
{
	int got;

	if (!w->muted)
		return poll_both(w, n);
	got = rn_poll(w->cq, w->wc, n);
	return got ? poll_more(w, w->sends, got, n) : 0;
}

int rn_watch_poll(uintptr_t watch, int n)
{
	return poll_both(watch_of(watch), n < RN_BATCH ? n : RN_BATCH);
}

static int arm_queue(struct rn_watch *w, struct rn_cq *cq)
{
	int code = rn_arm(cq);

	if (!code)
		w->arms++;
	return code;
}

static int arm(struct rn_watch *w)
{
	int code = arm_queue(w, w->cq);

	if (!code && w->sends && !w->muted)
		code = arm_queue(w, w->sends);
	return code;
}

int rn_watch_arm(uintptr_t watch)
{
	return arm(watch_of(watch));
}

/* Takes events, and does not look for more than can be there: each arming makes one
 * at most. When the channel is empty, only the last armings may still make one. */
static int take(struct rn_watch *w)
{
	unsigned int last = w->sends ? 2 : 1;
	int n = rn_drain(w->cq, w->arms, &w->unacked, &w->unacked_sends);

	if (n < 0)
		return n;
	w->arms -= (unsigned int)n;
	if (w->arms > last)
		w->arms = last;
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
	int64_t start = 0, t, yielded = 0;
	int i, got;

	for (i = 0;; i++) {
		got = look(w, n);
		if (got || woken(w))
			return got;
		if (i % LOOK_EVERY)
			continue;
		t = now();
		if (!i)
			start = yielded = t;
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
static int sleep_for(struct rn_watch *w, int n, int64_t block)
{
	struct pollfd wait[] = {
		{ .fd = w->cq->channel->fd, .events = POLLIN },
		{ .fd = w->waker, .events = POLLIN },
	};
	int64_t end = now() + block, left;
	struct timespec t = { 0, 0 };
	uint64_t count;
	int code, got, ready;

	for (;;) {
		code = arm(w);
		if (code)
			return -code;
		do {
			got = look(w, n);
			left = end - now();
			if (got || woken(w) || left <= 0)
				return got;
			t.tv_nsec = left;
			ready = ppoll(wait, 2, &t, NULL);
		} while (!ready || (ready < 0 && errno == EINTR));
		if (ready < 0)
			return -errno;
		if (wait[1].revents)
			(void)!read(w->waker, &count, sizeof count);
		if (!wait[0].revents)
			continue;
		got = take(w);
		if (got < 0)
			return got;
		got = look(w, n);
		if (got)
			return got;
	}
}

static int block_for(struct rn_watch *w, int n, int64_t block)
{
	int got, code = control(w, 0);

	if (code)
		return -code;
	if (w->waker < 0) {
		w->waker = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (w->waker < 0)
			return 0; /* out of descriptors: the poller needs none */
	}
	__atomic_store_n(&w->asleep, 1, __ATOMIC_SEQ_CST);
	got = sleep_for(w, n, block);
	__atomic_store_n(&w->asleep, 0, __ATOMIC_SEQ_CST);
	return got;
}

int rn_linger(uintptr_t watch, int n, int64_t spin, int64_t block)
{
	struct rn_watch *w = watch_of(watch);
	int got;

	w->slept = 0;
	if (n > RN_BATCH)
		n = RN_BATCH;
	got = spin ? spin_for(w, n, spin) : look(w, n);
	if (got || !block || woken(w))
		return got;
	w->slept = 1;
	return block_for(w, n, block);
}
