/* SPDX-License-Identifier: ISC */
/*
 * world: clients and origins around one worker.  A seed decides who they are,
 * what they want, how they misbehave and what the kernel does to them; each
 * checks what it sees, and the world checks what nobody sees (limits, leaks,
 * sessions that outlive their timeouts).
 */
#ifndef RW_SIM_WORLD_H
#define RW_SIM_WORLD_H

#include "kernel.h"
#include "worker.h"

/* ---- an actor's socket ---- */

struct peer {
	struct kfile	*f;		/* NULL: closed */
	struct kwatch	 watch;
	struct sim_event step;
	void		(*act)(struct peer *);
	uint64_t	 think_ns;	/* between what it sees and what it does, at most */
};

void	peer_begin(struct peer *, struct kfile *, void (*act)(struct peer *));
void	peer_poke(struct peer *);			/* act soon */
void	peer_poke_after(struct peer *, uint64_t ns);
void	peer_end(struct peer *, bool reset);

/* ---- bytes whose owner and offset are known ---- */

enum dir { UP, DOWN };
uint8_t	tag_byte(unsigned id, enum dir, uint64_t off);
void	tag_fill(unsigned id, enum dir, uint64_t off, void *, size_t);
void	tag_check(unsigned id, enum dir, uint64_t off, const void *, size_t);	/* fails the seed */

/* ---- origins ---- */

enum origin_kind {
	ORIGIN_TUNNEL, ORIGIN_HTTP
};

/* How a tunnel's origin behaves. */
enum origin_way {
	WAY_ANSWER_AFTER_EOF,	/* reads to the end, then sends and closes */
	WAY_SEND_AND_WAIT,	/* sends at once; closes after the client's end */
	WAY_FIN_FIRST,		/* sends, half-closes, then reads to the end */
	WAY_RESET,		/* resets after some bytes */
	WAY_VANISH,		/* stops doing anything after some bytes */
	WAY_SILENT,		/* accepts, says nothing, keeps reading; closes at the end */
	WAY_COUNT
};

enum http_way {
	HTTP_LENGTH, HTTP_CHUNKED, HTTP_CLOSE, HTTP_NO_CONTENT, HTTP_INTERIM,	/* whole answers */
	HTTP_EXCESS,							/* and bytes behind it */
	HTTP_CUT_LENGTH, HTTP_CUT_CHUNKED, HTTP_BAD_CHUNK, HTTP_RESET_BODY,	/* begun, and broken off */
	HTTP_NOTHING, HTTP_GARBAGE, HTTP_SWITCH, HTTP_MUTE,		/* no answer */
	HTTP_WAYS
};

struct origin {
	struct origin	*next;
	unsigned	 id;
	enum origin_kind kind;
	struct sockaddr_storage at;
	socklen_t	 atlen;
	enum kroute	 route;
	unsigned	 dead_addrs;		/* answers of the name that lead nowhere, before the good one */
	struct peer	 listener;
	struct peer	 conn;
	unsigned	 accepted;
	/* Tunnels. */
	enum origin_way	 way;
	uint64_t	 down_len, up_len;	/* what it sends; what the client means to send */
	uint64_t	 break_at;		/* of bytes sent and received */
	uint64_t	 sent, got;
	bool		 saw_fin, saw_rst, sent_fin, sent_rst, vanished;
	/* What its client has done, and when either of them last moved a byte. */
	bool		 client_ready, client_fin;
	uint64_t	 client_sent, moved_ns;
	/* HTTP. */
	enum http_way	 http;
	bool		 early;			/* answers before it has read the body */
	bool		 rude;			/* and closes without reading it */
	bool		 is_head;
	char		*answer;
	size_t		 answer_len;
	char		 head[4096];		/* of the request */
	size_t		 head_len, head_end;
	bool		 request_whole, chunked;
	uint64_t	 body_len, body_got;
	uint64_t	 chunk_left;
	unsigned	 chunk_state;
	bool		 answering;
	bool		 expects;		/* 100 (Continue) is waited for */
	bool		 flawed;		/* its connection broke for a reason of the world's */
};

struct origin *origin_new(enum origin_kind);
void	origin_listen(struct origin *);
struct origin *origin_find(const struct sockaddr *);
struct origin *origin_by_id(unsigned id);
void	origin_name(const struct origin *, char out[64]);	/* what resolve.c knows it by */
void	origins_free(void);
void	origin_tunnel_act(struct peer *);
void	origin_http_act(struct peer *);

/* ---- clients ---- */

struct client;
struct client_kind {
	const char	*name;
	void		(*act)(struct client *);
	void		(*free)(struct client *);
};

struct client {
	struct client	*next;
	const struct client_kind *kind;
	unsigned	 id;
	struct peer	 peer;
	struct sim_event start;
	struct sockaddr_storage from;
	uint64_t	 started_ns, connected_ns, ended_ns;
	bool		 done;		/* nothing more to expect of it */
	bool		 vanished;
	bool		 broken;	/* a send told of the reset: the next receive will not */
	bool		 flawed;	/* it misbehaves itself: nothing is promised to it but what always holds */
	void		*own;
};

void	client_start(struct client *);
void	client_end(struct client *, bool reset);
/* As k_recv; after a send that failed, an end is a reset. */
long	client_recv(struct client *, void *, size_t);
/* Flushes `n` bytes at *off of `buf`; false: an error, the connection is broken. */
bool	client_send(struct client *, const uint8_t *buf, size_t len, size_t *off);
struct client *client_new(const struct client_kind *, size_t own_size);

void	tunnel_client_make(void);
void	http_client_make(void);
void	odd_client_make(void);		/* says nothing, nonsense, or too little */

/* ---- the world ---- */

struct world {
	struct conf		*conf;
	struct limits		*limits;
	struct worker_shared	 shared;
	struct worker		 worker;
	struct snapshot		*snapshot;
	struct io_choice	 choice;
	struct addr		 own;
	struct kfile		*listen_file;
	struct client		*clients;
	struct origin		*origins;
	unsigned		 client_count, next_id;
	bool			 ideal;		/* nothing is done to the worker: all promises hold */
	bool			 hogs;		/* many who ask for much and read little: the pool runs dry */
	bool			 ends_early;	/* drained or aborted while clients are there */
	bool			 drained, aborted;
	uint64_t		 drain_ns, abort_ns;
	uint64_t		 active_ns;	/* when an actor last moved a byte */
	struct sim_event	 tick, drain_ev, abort_ev;
};

extern struct world world;

/* 0, or does not return (sim_fail). */
void	world_run(uint64_t seed, struct sim_trace *, bool verbose);
static inline uint64_t
limit_ns(uint32_t seconds)
{
	return seconds * SIM_S;
}

#endif
