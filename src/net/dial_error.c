/* SPDX-License-Identifier: ISC */
#include "net/dial_error.h"

#include <errno.h>

#include "io/io.h"
#include "net/dial.h"

const char *
dial_strerror(enum dial_status status)
{
	switch (status) {
	case DIAL_OK:
		return "connected";
	case DIAL_NO_NAME:
		return "name not resolved";
	case DIAL_DNS_FAILED:
		return "name servers failed";
	case DIAL_DNS_TIMEOUT:
		return "name servers did not answer";
	case DIAL_DENIED:
		return "address denied";
	case DIAL_FAILED:
		return "connect failed";
	case DIAL_NO_RESOURCES:
		return "out of descriptors or memory";
	}
	return "?";
}

int
dial_error_rank(int err)
{
	switch (err) {
	case IO_OK:
		return 0;
	case IO_EREFUSED:
		return 6;
	case IO_ERESET:
		return 5;
	case IO_ETIMEDOUT:
		return 4;
	case IO_EHOSTUNREACH:
		return 3;
	case IO_ENETUNREACH:
		return 2;
	default:
		return 1;
	}
}

bool
dial_error_is_shortage(int err)
{
	return err == IO_EMFILE || err == IO_ENOMEM;
}

int
dial_error_of(int error)
{
	switch (error) {
	case EMFILE:
	case ENFILE:
		return IO_EMFILE;
	case ENOMEM:
	case ENOBUFS:
		return IO_ENOMEM;
	case EADDRNOTAVAIL:
	case EAFNOSUPPORT:
		return IO_EADDRNOTAVAIL;
	case EADDRINUSE:
		return IO_EADDRINUSE;
	case EPERM:
	case EACCES:
		return IO_EACCES;
	default:
		return IO_EOTHER;
	}
}
