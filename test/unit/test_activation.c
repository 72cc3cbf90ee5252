/* SPDX-License-Identifier: ISC */
#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "activation.h"
#include "background.h"
#include "net/sockopt.h"

/*
 * The program that is started is this one: with CHILD set, child_main() below
 * runs before Criterion and never returns.
 */
#define CHILD "RINGWAY_TEST_ACTIVATION"

enum { WAIT_MS = 10000, FDS_START = 3, OUTPUT_MAX = 4096 };

static char text[ACTIVATION_TEXT_MAX];
static char output[OUTPUT_MAX];

/* ---- the started program ---- */

static void
print_taken(const struct activation *set)
{
	char where[ADDR_TEXT_MAX];

	printf("origin=%d count=%zu%s\n", set->origin, set->count, set->managed ? " managed" : "");
	for (size_t i = 0; i < set->count; i++) {
		const struct activation_fd *a = &set->fds[i];

		printf("%s name=%s reuseport=%d v6only=%d flags=%d%d\n",
		    a->unix_path != NULL ? a->unix_path : addr_format_ip(&a->addr, where),
		    a->name != NULL ? a->name : "-", a->reuseport, a->v6only,
		    (fcntl(a->fd, F_GETFD) & FD_CLOEXEC) != 0,
		    (fcntl(a->fd, F_GETFL) & O_NONBLOCK) != 0);
	}
	printf("environment=%s%s%s\n", getenv("LISTEN_FDS") != NULL ? "FDS" : "",
	    getenv("LISTEN_PID") != NULL ? "PID" : "",
	    getenv("RINGWAY_HANDOVER") != NULL ? "OURS" : "");
}

/* Answers what waits on each socket with "new". */
static void
answer(struct activation *set)
{
	for (size_t i = 0; i < set->count; i++)
		for (int fd; (fd = accept(set->fds[i].fd, NULL, NULL)) >= 0; close(fd))
			(void)!write(fd, "new", 3);
}

static void __attribute__((constructor))
child_main(void)
{
	const char *what = getenv(CHILD);
	struct activation set;
	struct background b;

	if (what == NULL)
		return;
	if (strcmp(what, "die") == 0)
		_exit(3);
	if (activation_take(&set, text) != 0) {
		printf("%s\n", text);
		fflush(stdout);
		_exit(1);
	}
	print_taken(&set);
	background_adopt(&b, set.ready_fd);
	if (strcmp(what, "serve") == 0)
		answer(&set);
	if (strcmp(what, "rest") == 0)
		printf("%d %s\n", activation_rest(&set, text), text);
	fflush(stdout);
	if (strcmp(what, "fail") == 0)
		background_failed(&b, "because of the test");
	else
		background_ready(&b);
	_exit(0);
}

/* ---- sockets ---- */

static int
listening(const char *ip, unsigned flags, struct addr *at)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	int fd;

	cr_assert(addr_parse_ip(span_str(ip), 0, at));
	if ((fd = sockopt_listen(at, flags, 16, text)) < 0)
		return fd;
	cr_assert_eq(getsockname(fd, (struct sockaddr *)&ss, &len), 0);
	addr_from_sockaddr(at, (struct sockaddr *)&ss, len);
	return fd;
}

static int
client(const struct addr *at)
{
	int fd = socket(at->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert_eq(connect(fd, &at->sa, at->len), 0, "%s", strerror(errno));
	return fd;
}

/* As a manager does: the descriptors from 3 on, and its variables; the exit code. */
static int
run_activated_to(const char *what, const int *fds, int count, const char *names, bool right_pid)
{
	char value[32];
	int ends[2], status;
	size_t used = 0;
	ssize_t n;
	pid_t pid;

	cr_assert_eq(pipe(ends), 0);
	if ((pid = fork()) == 0) {
		int high[8];

		dup2(ends[1], 1);
		for (int i = 0; i < count; i++)
			high[i] = fcntl(fds[i], F_DUPFD, 100);
		for (int i = 0; i < count; i++)
			dup2(high[i], FDS_START + i);
		snprintf(value, sizeof(value), "%d", count);
		setenv("LISTEN_FDS", value, 1);
		snprintf(value, sizeof(value), "%ld", (long)getpid() + !right_pid);
		setenv("LISTEN_PID", value, 1);
		if (names != NULL)
			setenv("LISTEN_FDNAMES", names, 1);
		setenv(CHILD, what, 1);
		execl("/proc/self/exe", "activated", (char *)NULL);
		_exit(99);
	}
	close(ends[1]);
	while ((n = read(ends[0], output + used, sizeof(output) - 1 - used)) > 0)
		used += (size_t)n;
	output[used] = '\0';
	close(ends[0]);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static int
run_activated(const int *fds, int count, const char *names, bool right_pid)
{
	return run_activated_to("print", fds, count, names, right_pid);
}

/* ---- from a manager ---- */

Test(activation, sockets_of_a_manager_are_taken)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX, .sun_path = "/tmp/ringway-activation.sock" };
	struct addr at;
	int fds[3];

	unlink(un.sun_path);
	fds[0] = listening("127.0.0.1", SOCKOPT_REUSEPORT, &at);
	fds[1] = listening("127.0.0.2", 0, &at);
	fds[2] = socket(AF_UNIX, SOCK_STREAM, 0);
	cr_assert_eq(bind(fds[2], (struct sockaddr *)&un, sizeof(un)), 0);
	cr_assert_eq(listen(fds[2], 4), 0);
	cr_expect_eq(run_activated(fds, 3, "proxy:second", true), 0);
	cr_expect_str_eq(output, "origin=1 count=3 managed\n"
	    "127.0.0.1 name=proxy reuseport=1 v6only=0 flags=11\n"
	    "127.0.0.2 name=second reuseport=0 v6only=0 flags=11\n"
	    "/tmp/ringway-activation.sock name=- reuseport=0 v6only=0 flags=11\n"
	    "environment=\n");
	unlink(un.sun_path);
}

Test(activation, variables_meant_for_another_process_are_dropped)
{
	struct addr at;
	int fd = listening("127.0.0.1", 0, &at);

	cr_expect_eq(run_activated(&fd, 1, NULL, false), 0);
	cr_expect_str_eq(output, "origin=0 count=0\nenvironment=\n");
}

Test(activation, what_is_no_listening_stream_socket_is_refused)
{
	struct addr at;
	int fds[2] = { listening("127.0.0.1", 0, &at), open("/dev/null", O_RDONLY) };

	cr_expect_eq(run_activated(fds, 2, NULL, true), 1);
	cr_expect_str_eq(output, "LISTEN_FDS: descriptor 4 is not a socket\n");
	fds[1] = socket(AF_INET, SOCK_DGRAM, 0);
	cr_expect_eq(run_activated(fds, 2, "a:b", true), 1);
	cr_expect_str_eq(output, "LISTEN_FDS: descriptor 4 is not a stream socket "
	    "(ListenStream= is what is needed), name b\n");
	fds[1] = client(&at);
	cr_expect_eq(run_activated(fds, 2, NULL, true), 1);
	cr_expect_str_eq(output, "LISTEN_FDS: descriptor 4 is not a listening socket "
	    "(Accept=no is what is needed)\n");
}

static int
take_with(const char *fds, const char *ours)
{
	struct activation set;
	char pid[32];
	int rc;

	snprintf(pid, sizeof(pid), "%ld", (long)getpid());
	setenv("LISTEN_PID", pid, 1);
	if (fds != NULL)
		setenv("LISTEN_FDS", fds, 1);
	if (ours != NULL)
		setenv("RINGWAY_HANDOVER", ours, 1);
	rc = activation_take(&set, text);
	cr_expect_null(getenv("LISTEN_FDS"));
	cr_expect_null(getenv("RINGWAY_HANDOVER"));
	activation_free(&set);
	return rc;
}

Test(activation, broken_variables_are_refused_with_a_reason)
{
	struct addr at;
	char value[128];
	int fd = listening("127.0.0.1", 0, &at);

	cr_expect_eq(take_with("0", NULL), 0);
	for (const char *const *v = (const char *const []){ "", "x", "-1", "3x", "99999999999999999999",
	    NULL }; *v != NULL; v++)
		cr_expect_eq(take_with(*v, NULL), -EINVAL, "%s", *v);
	cr_expect_str_eq(text, "LISTEN_FDS: \"99999999999999999999\" is not a number of descriptors");
	for (const char *const *v = (const char *const []){ "x", "listen=3", "listen=@127.0.0.1:80",
	    "ready=", "ready=1x", "pid=987", "listen=987@127.0.0.1:1", NULL }; *v != NULL; v++)
		cr_expect_eq(take_with(NULL, *v), -EINVAL, "%s", *v);
	/* A variable that outlived its descriptors. */
	snprintf(value, sizeof(value), "listen=%d@127.0.0.1:1;", fd);
	cr_expect_eq(take_with(NULL, value), -EINVAL);
	cr_expect_not_null(strstr(text, "not on 127.0.0.1:1"), "%s", text);
}

/* ---- matching ---- */

/* As if handed over: the variable as the old process writes it. */
static void
hand_to_self(struct activation *set, const int *fds, const char *const *where, size_t count)
{
	char value[1024] = "";

	for (size_t i = 0; i < count; i++)
		snprintf(value + strlen(value), sizeof(value) - strlen(value), "listen=%d@%s;", fds[i],
		    where[i]);
	setenv("RINGWAY_HANDOVER", value, 1);
	cr_assert_eq(activation_take(set, text), 0, "%s", text);
}

Test(activation, every_socket_of_an_address_is_found_once)
{
	char one[ADDR_TEXT_MAX], other[ADDR_TEXT_MAX];
	const struct activation_fd *a;
	struct activation set;
	struct addr at, elsewhere, any;
	int fds[3], fd;

	fds[0] = listening("127.0.0.1", SOCKOPT_REUSEPORT, &at);
	fds[1] = sockopt_listen(&at, SOCKOPT_REUSEPORT, 16, text);
	fds[2] = listening("127.0.0.2", 0, &elsewhere);
	addr_format(&at, one);
	addr_format(&elsewhere, other);
	hand_to_self(&set, fds, (const char *const []){ one, one, other }, 3);
	cr_expect_eq(set.origin, ACTIVATION_HANDOVER);
	cr_expect(!set.managed);
	cr_expect_eq(activation_count(&set, &at, NULL), 2u);
	cr_assert_not_null(a = activation_find(&set, &at, NULL, &fd));
	cr_expect_eq(fd, fds[0]);
	cr_expect(a->reuseport);
	cr_assert_not_null(activation_find(&set, &at, NULL, &fd));
	cr_expect_eq(fd, fds[1]);
	cr_expect_null(activation_find(&set, &at, NULL, &fd));
	/* Port 0: whichever port it was. */
	any = elsewhere;
	addr_set_port(&any, 0);
	cr_assert_not_null(a = activation_find(&set, &any, NULL, &fd));
	cr_expect_eq(addr_port(&a->addr), addr_port(&elsewhere));
	cr_expect_eq(activation_rest(&set, text), 0);
	cr_expect_str_eq(text, "");
	activation_free(&set);
	cr_expect_eq(fcntl(fds[2], F_GETFD), FD_CLOEXEC, "the caller's are not closed");
}

Test(activation, what_no_listener_asks_for_is_told)
{
	char where[ADDR_TEXT_MAX], want[256];
	struct activation set;
	struct addr at;
	int fd = listening("127.0.0.1", 0, &at);

	addr_format(&at, where);
	hand_to_self(&set, &fd, (const char *const []){ where }, 1);
	cr_expect_eq(activation_rest(&set, text), 0);
	cr_expect_str_eq(text, where);
	cr_expect_lt(fcntl(fd, F_GETFD), 0, "closed");
	activation_free(&set);
	/* The same from a manager. */
	fd = listening("127.0.0.1", 0, &at);
	addr_format(&at, where);
	cr_expect_eq(run_activated_to("rest", &fd, 1, "ringway.socket", true), 0);
	snprintf(want, sizeof(want), "\n%d no listener is configured for inherited %s (ringway.socket)\n",
	    -EADDRNOTAVAIL, where);
	cr_expect_not_null(strstr(output, want), "%s", output);
}

static ino_t
inode(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

Test(activation, workers_without_a_socket_get_a_twin_or_a_copy)
{
	char where[ADDR_TEXT_MAX];
	const struct activation_fd *a;
	struct activation set;
	struct addr at;
	int fd, given, more;

	for (unsigned flags = 0; flags <= SOCKOPT_REUSEPORT; flags += SOCKOPT_REUSEPORT) {
		fd = listening("127.0.0.1", flags, &at);
		addr_format(&at, where);
		hand_to_self(&set, &fd, (const char *const []){ where }, 1);
		cr_assert_not_null(a = activation_find(&set, &at, NULL, &given));
		cr_assert_geq(more = activation_more(a, given, 16), 0);
		cr_expect_eq(inode(more) == inode(given), flags == 0);
		cr_expect_eq(fcntl(more, F_GETFD), FD_CLOEXEC);
		activation_free(&set);
	}
}

/* ---- the hand-over ---- */

static char *const child_argv[] = { "ringway", NULL };

/* What the child says in the end; it is reaped. */
static enum background_verdict
spawn(const char *what, const struct activation_handover *h, char why[BACKGROUND_TEXT_MAX])
{
	struct activation_child child;
	enum background_verdict v;

	setenv(CHILD, what, 1);
	cr_assert_eq(activation_spawn("/proc/self/exe", child_argv, h, &child, text), 0, "%s", text);
	v = background_look(child.ready_fd, WAIT_MS, why);
	close(child.ready_fd);
	cr_assert_eq(waitpid(child.pid, NULL, 0), child.pid);
	unsetenv(CHILD);
	return v;
}

Test(activation, clients_in_every_backlog_are_served_by_the_new_process)
{
	enum { CLIENTS = 8 };
	char why[BACKGROUND_TEXT_MAX], got[4] = "";
	struct addr at;
	FILE *out = tmpfile();
	int clients[CLIENTS];
	int fds[3] = { listening("127.0.0.1", SOCKOPT_REUSEPORT, &at), -1, -1 };

	fds[1] = sockopt_listen(&at, SOCKOPT_REUSEPORT, 16, text);
	fds[2] = fds[0];	/* a Unix listener's copies are like that */
	for (int i = 0; i < CLIENTS; i++)
		clients[i] = client(&at);
	dup2(fileno(out), 1);
	cr_expect_eq(spawn("serve", &(struct activation_handover){ fds, 3, -1, true }, why), BACKGROUND_READY,
	    "%s", why);
	rewind(out);
	cr_assert_not_null(fgets(output, sizeof(output), out));
	cr_expect_str_eq(output, "origin=2 count=2 managed\n");
	fclose(out);
	/* Ours are still close-on-exec: the flag was taken off in the child alone. */
	cr_expect_eq(fcntl(fds[0], F_GETFD), FD_CLOEXEC);
	for (int i = 0; i < CLIENTS; i++) {
		struct pollfd p = { .fd = clients[i], .events = POLLIN };

		cr_assert_eq(poll(&p, 1, WAIT_MS), 1);
		cr_expect_eq(read(clients[i], got, 3), 3);
		cr_expect_str_eq(got, "new");
	}
}

Test(activation, a_child_that_fails_says_why)
{
	struct activation_handover h = { .fds = NULL, .pid_fd = -1 };
	char why[BACKGROUND_TEXT_MAX];

	dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), 1);
	cr_expect_eq(spawn("fail", &h, why), BACKGROUND_FAILED);
	cr_expect_str_eq(why, "because of the test");
	cr_expect_eq(spawn("die", &h, why), BACKGROUND_FAILED);
	cr_expect_str_eq(why, "");
}

Test(activation, a_program_that_is_not_there_is_an_error_at_once)
{
	struct activation_handover h = { .fds = NULL, .pid_fd = -1 };
	struct activation_child child;

	cr_expect_eq(activation_spawn("/nonexistent/ringway", child_argv, &h, &child, text), -ENOENT);
	cr_expect_str_eq(text, "can't start /nonexistent/ringway: No such file or directory");
	cr_expect_eq(child.ready_fd, -1);
}

Test(activation, the_program_is_found_by_its_first_argument)
{
	char dir[] = "/tmp/ringway-program-XXXXXX", link[64], *p;

	cr_assert_not_null(mkdtemp(dir));
	snprintf(link, sizeof(link), "%s/ringway", dir);
	cr_assert_eq(symlink("/bin/sh", link), 0);
	/* The link and not what it points to: upgrades swap links. */
	cr_expect_str_eq(p = activation_program(link), link);
	free(p);
	cr_assert_eq(chdir(dir), 0);
	p = activation_program("./ringway");
	cr_expect(p != NULL && access(p, X_OK) == 0 && p[0] == '/', "%s", p);
	free(p);
	setenv("PATH", dir, 1);
	cr_expect_str_eq(p = activation_program("ringway"), link);
	free(p);
	p = activation_program("no-such-program");
	cr_expect(p != NULL && p[0] == '/', "the kernel's answer");
	free(p);
	unlink(link);
	rmdir(dir);
}
