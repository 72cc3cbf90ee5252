/* SPDX-License-Identifier: ISC */
/*
 * dial_error: what the failures of a dial's attempts mean.  No state.
 */
#ifndef RW_NET_DIAL_ERROR_H
#define RW_NET_DIAL_ERROR_H

#include <stdbool.h>

/* How much an enum io_err tells, IO_OK least; the order is at the head of dial.h. */
int	dial_error_rank(int err);
/* Descriptors or memory have run out: trying another address can't help. */
bool	dial_error_is_shortage(int err);
/* enum io_err for the (positive) errno with which a socket could not be made. */
int	dial_error_of(int error);

#endif
