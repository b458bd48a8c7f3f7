//go:build linux && cgo

#include "shim.h"

#include <dlfcn.h>
#include <stdio.h>

struct rn_api rn_api;

int rn_load(const char *rdmacm, const char *ibverbs, char *text, size_t size)
{
	struct rn_api api;
	void *verbs, *cm;

	/* librdmacm needs libibverbs: opened first, it is the one that is
	 * reported missing when it is. RTLD_GLOBAL is not needed, since the
	 * drivers that libibverbs opens are linked against it. */
	verbs = dlopen(ibverbs, RTLD_NOW | RTLD_LOCAL);
	if (!verbs) {
		snprintf(text, size, "%s", dlerror());
		return RN_LOAD_NO_IBVERBS;
	}
	cm = dlopen(rdmacm, RTLD_NOW | RTLD_LOCAL);
	if (!cm) {
		snprintf(text, size, "%s", dlerror());
		dlclose(verbs);
		return RN_LOAD_NO_RDMACM;
	}

#define LOOKUP(library, name) (*(void **)&api.name = dlsym(library, #name))
#define REQUIRED(library, name)                        \
	do {                                           \
		if (!LOOKUP(library, name)) {          \
			snprintf(text, size, #name);   \
			goto missing;                  \
		}                                      \
	} while (0);
#define CM_CALL(result, name, parameters) REQUIRED(cm, name)
#define CM_OPTIONAL_CALL(result, name, parameters) LOOKUP(cm, name);
#define VERBS_CALL(result, name, parameters) REQUIRED(verbs, name)

	RN_IBVERBS_CALLS(VERBS_CALL)
	RN_RDMACM_CALLS(CM_CALL)
	RN_RDMACM_OPTIONAL_CALLS(CM_OPTIONAL_CALL)

	/* No symbol came with the release that mends it, 52; this one came with 60. */
	if (!api.rdma_resolve_addrinfo)
		rn_use_one_thread(&api);
	rn_api = api;
	return 0;

missing:
	dlclose(cm);
	dlclose(verbs);
	return RN_LOAD_NO_SYMBOL;
}

int rn_has_addrinfo(void)
{
	return rn_api.rdma_resolve_addrinfo && rn_api.rdma_query_addrinfo;
}
