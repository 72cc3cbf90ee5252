/* SPDX-License-Identifier: ISC */
/*
 * seccomp_exec: runs a program in which io_uring_setup(2) fails, as container
 * runtimes make it fail.
 *
 *	seccomp_exec EPERM|ENOSYS|EACCES program [argument...]
 *
 * A raw BPF filter, so that nothing but kernel headers is needed.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef __NR_io_uring_setup
#define __NR_io_uring_setup 425		/* the same number on every architecture but alpha */
#endif

static int
errno_of(const char *name)
{
	if (strcmp(name, "EPERM") == 0)
		return EPERM;
	if (strcmp(name, "ENOSYS") == 0)
		return ENOSYS;
	if (strcmp(name, "EACCES") == 0)
		return EACCES;
	return 0;
}

int
main(int argc, char **argv)
{
	int err = argc > 2 ? errno_of(argv[1]) : 0;

	if (err == 0) {
		fprintf(stderr, "usage: seccomp_exec EPERM|ENOSYS|EACCES program [argument...]\n");
		return 2;
	}

	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ((unsigned)err & SECCOMP_RET_DATA)),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(code[0]), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0) != 0) {
		perror("seccomp");
		return 77;
	}
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 127;
}
