/* SPDX-License-Identifier: ISC */
/* C10: results are from a closed set; the raw code stays in syserr. */
#include <errno.h>

#include "suite.h"

#ifdef _WIN32
#define SYS_EISCONN WSAEISCONN
#else
#define SYS_EISCONN EISCONN
#endif

CASE(every_error_has_words, "C10")
{
	for (int e = IO_EOTHER; e < IO_OK; e++) {
		const char *s = io_strerror(e);

		CHECK(s != NULL && s[0] != '\0');
		for (int f = IO_EOTHER; f < e; f++)
			CHECK(strcmp(s, io_strerror(f)) != 0);
	}
	CHECK(strstr(io_strerror(IO_EREFUSED), "refused") != NULL);
}

CASE(receive_on_a_socket_without_connection_is_an_error, "C10")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op r = { 0 };
	char c;

	t_adopt(l, &a, n_tcp(AF_INET));
	t_recv(&r, &a, &c, 1);
	TURN_UNTIL(l, !r.armed);
	CHECK(r.res < 0 && r.res != IO_ECANCELED);
	CHECK(r.syserr != 0);
	t_close(&a);
	t_loop_end(l);
}

CASE(accept_on_a_socket_that_does_not_listen_is_an_error, "C10")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op r = { 0 };

	t_adopt(l, &a, n_tcp(AF_INET));
	t_accept(&r, &a);
	TURN_UNTIL(l, !r.armed);
	CHECK_EQ(r.res, IO_EINVAL);
	CHECK(r.syserr != 0);
	t_close(&a);
	t_loop_end(l);
}

CASE(connect_to_an_address_of_another_family_is_an_error, "C10 C16")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op r = { 0 };
	struct n_addr to;

	if (!n_addr6(&to, "::1", 1))
		SKIP("no IPv6 here");
	t_adopt(l, &a, n_tcp(AF_INET));
	t_connect(&r, &a, n_sa(&to), to.len);
	TURN_UNTIL(l, !r.armed);
	CHECK(r.res == IO_EADDRNOTAVAIL || r.res == IO_EINVAL);
	t_close(&a);
	t_loop_end(l);
}

CASE(connect_a_second_time_is_an_error, "C10")
{
	struct io_loop *l = t_loop();
	struct t_sock a;
	struct t_op r = { 0 };
	struct n_addr at;
	io_fd lfd = n_listen("127.0.0.1", 4, &at);

	t_adopt(l, &a, n_tcp(AF_INET));
	t_connect(&r, &a, n_sa(&at), at.len);
	TURN_UNTIL(l, !r.armed);
	CHECK_EQ(r.res, 0);
	t_connect(&r, &a, n_sa(&at), at.len);
	TURN_UNTIL(l, !r.armed);
	CHECK(r.res < 0);
	CHECK_EQ(r.syserr, SYS_EISCONN);
	t_close(&a);
	t_loop_end(l);
	n_close(lfd);
}

CASE(broadcast_without_permission_is_access_denied, "C10 C28")
{
	struct io_loop *l = t_loop();
	struct t_sock u;
	struct t_op s = { 0 };
	struct io_dgram d = { 0 };
	struct n_addr to;
	char c = 0;

	t_adopt(l, &u, n_udp("127.0.0.1", NULL));
	n_addr4(&to, "127.255.255.255", 9);
	d.buf.base = (uint8_t *)&c;
	d.buf.len = 1;
	d.peer = to.ss;
	d.peerlen = to.len;
	t_send_batch(&s, &u, &d, 1);
	TURN_UNTIL(l, !s.armed);
	CHECK_EQ(d.res, IO_EACCES);
	CHECK_EQ(s.res, 0);
	t_close(&u);
	t_loop_end(l);
}
