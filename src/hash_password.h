/* SPDX-License-Identifier: ISC */
/*
 * hash_password: `ringway --hash-password [PW]`.  Prints a password record and
 * never the password.
 */
#ifndef RW_HASH_PASSWORD_H
#define RW_HASH_PASSWORD_H

/*
 * password NULL: asks twice on a terminal, without echo, or reads one line of
 * standard input.  Returns the exit code: 0, or 1 with a message on standard
 * error.
 */
int	hash_password(const char *password);

#endif
