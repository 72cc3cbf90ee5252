/* SPDX-License-Identifier: ISC */
/* The kernel's error codes to the contract's closed set (C10). */
#include <errno.h>

#include "internal.h"

#ifdef _WIN32
#define SYS(name) WSA##name
#else
#define SYS(name) name
#endif

static const struct { int sys; int8_t err; } map[] = {
	{ SYS(ECONNREFUSED),	IO_EREFUSED },
	{ SYS(ECONNRESET),	IO_ERESET },
	{ SYS(ECONNABORTED),	IO_ERESET },
	{ SYS(ETIMEDOUT),	IO_ETIMEDOUT },
	{ SYS(ENETUNREACH),	IO_ENETUNREACH },
	{ SYS(ENETDOWN),	IO_ENETUNREACH },
	{ SYS(EHOSTUNREACH),	IO_EHOSTUNREACH },
	{ SYS(EHOSTDOWN),	IO_EHOSTUNREACH },
	{ SYS(EADDRINUSE),	IO_EADDRINUSE },
	{ SYS(EADDRNOTAVAIL),	IO_EADDRNOTAVAIL },
	{ SYS(EAFNOSUPPORT),	IO_EADDRNOTAVAIL },
	{ SYS(EMFILE),		IO_EMFILE },
	{ SYS(ENOBUFS),		IO_ENOMEM },
	{ SYS(EMSGSIZE),	IO_EMSGSIZE },
	{ SYS(EACCES),		IO_EACCES },
	{ SYS(EINVAL),		IO_EINVAL },
	{ SYS(EOPNOTSUPP),	IO_ENOTSUP },
	{ SYS(ENOTCONN),	IO_ERESET },	/* the peer was gone before we looked */
#ifdef _WIN32
	{ WSAESHUTDOWN,		IO_ERESET },	/* what is EPIPE elsewhere */
	{ WSAEDISCON,		IO_ERESET },
	{ WSAENETRESET,		IO_ERESET },
	{ WSAEFAULT,		IO_EINVAL },
	{ ERROR_OPERATION_ABORTED, IO_ECANCELED },
	{ ERROR_NETNAME_DELETED, IO_ERESET },
	{ ERROR_CONNECTION_REFUSED, IO_EREFUSED },
	{ ERROR_CONNECTION_ABORTED, IO_ERESET },
	{ ERROR_NETWORK_UNREACHABLE, IO_ENETUNREACH },
	{ ERROR_HOST_UNREACHABLE, IO_EHOSTUNREACH },
	{ ERROR_PORT_UNREACHABLE, IO_EREFUSED },
	{ ERROR_SEM_TIMEOUT,	IO_ETIMEDOUT },
	{ ERROR_MORE_DATA,	IO_EMSGSIZE },
	{ ERROR_NOT_ENOUGH_MEMORY, IO_ENOMEM },
#else
	{ EPIPE,		IO_ERESET },
	{ ECANCELED,		IO_ECANCELED },
	{ ENFILE,		IO_EMFILE },
	{ ENOMEM,		IO_ENOMEM },
	{ EPERM,		IO_EACCES },
	{ ENOSYS,		IO_ENOTSUP },
	{ EPROTONOSUPPORT,	IO_EADDRNOTAVAIL },
#endif
};

int32_t
io_err_of(int sys)
{
	for (size_t i = 0; i < sizeof map / sizeof map[0]; i++)
		if (map[i].sys == sys)
			return map[i].err;
	return IO_EOTHER;
}

const char *
io_strerror(int err)
{
	static const char *const text[] = {
		"success", "canceled", "connection refused", "connection reset",
		"timed out", "network unreachable", "host unreachable",
		"address in use", "address not available",
		"too many open files", "out of memory", "message too long",
		"not permitted", "invalid argument", "not supported",
		"unexpected system error"
	};

	if (err > 0)
		err = 0;
	if (err < IO_EOTHER)
		err = IO_EOTHER;
	return text[-err];
}
