/* SPDX-License-Identifier: ISC */
/*
 * driver: main() for the fuzz targets where the compiler has no libFuzzer.
 * Runs the target over every file named (or found in the folders named), then
 * over mutations of them from a fixed seed.  Takes the flags of libFuzzer that
 * fuzz/smoke.sh uses: -runs= -seed= -max_len= -artifact_prefix=.  It is blind
 * to coverage; an input that ends the process is left in the artifact file.
 */
#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What libFuzzer uses when nothing is said. */
#define MAX_LEN_DEFAULT_BYTES	4096
#define SEED_FILE_MAX_BYTES	(1U << 20)

struct input {
	uint8_t	*data;
	size_t	 len;
};

static struct {
	struct input	*seeds;
	size_t		 count;
	size_t		 max_len_bytes;
	uint64_t	 state;		/* of the generator: xorshift64*, never 0 */
	const char	*prefix;
} fuzz = { .max_len_bytes = MAX_LEN_DEFAULT_BYTES, .state = 1, .prefix = "" };

/* Read by the signal handler. */
static struct input current;
static char artifact[4096];

static uint64_t
pick(uint64_t below)
{
	fuzz.state ^= fuzz.state >> 12;
	fuzz.state ^= fuzz.state << 25;
	fuzz.state ^= fuzz.state >> 27;
	return (fuzz.state * 0x2545f4914f6cdd1dULL >> 16) % below;
}

/* Keeps what ended the process.  Async-signal-safe. */
static void
keep(void)
{
	int fd = open(artifact, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	if (fd == -1)
		return;
	if (write(fd, current.data, current.len) < 0)
		_exit(1);
	close(fd);
}

static void
keep_on_signal(int sig)
{
	keep();
	signal(sig, SIG_DFL);
	raise(sig);
}

/* A sanitizer ends the process by itself, after its report. */
void	__sanitizer_set_death_callback(void (*)(void)) __attribute__((weak));

static void
arm(void)
{
	static const int fatal[] = { SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL };
	struct sigaction old;

	for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++)
		if (sigaction(fatal[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
			signal(fatal[i], keep_on_signal);
	if (__sanitizer_set_death_callback != NULL)
		__sanitizer_set_death_callback(keep);
}

static void
run_one(const uint8_t *data, size_t len)
{
	/* An exact copy, so that a sanitizer sees the first byte too many. */
	uint8_t *copy = malloc(len > 0 ? len : 1);

	if (copy == NULL)
		err(1, "malloc");
	if (len > 0)
		memcpy(copy, data, len);
	current = (struct input){ copy, len };
	LLVMFuzzerTestOneInput(copy, len);
	current = (struct input){ NULL, 0 };
	free(copy);
}

static void
seed_add(uint8_t *data, size_t len)
{
	struct input *more = realloc(fuzz.seeds, (fuzz.count + 1) * sizeof(*more));

	if (more == NULL)
		err(1, "realloc");
	fuzz.seeds = more;
	fuzz.seeds[fuzz.count++] = (struct input){ data, len };
}

static void
seed_load_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	uint8_t *data = malloc(SEED_FILE_MAX_BYTES);
	size_t len;

	if (f == NULL || data == NULL)
		err(1, "%s", path);
	len = fread(data, 1, SEED_FILE_MAX_BYTES, f);
	fclose(f);
	run_one(data, len);
	seed_add(data, len);
}

static int
by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* In the order of names: a seed of the generator must mean the same run everywhere. */
static void
seed_load(const char *path)
{
	struct dirent **names;
	struct stat st;
	int n;

	if (stat(path, &st) == -1)
		err(1, "%s", path);
	if (!S_ISDIR(st.st_mode)) {
		seed_load_file(path);
		return;
	}
	n = scandir(path, &names, NULL, by_name);
	if (n == -1)
		err(1, "%s", path);
	for (int i = 0; i < n; i++) {
		char *name;

		if (names[i]->d_name[0] != '.') {
			if (asprintf(&name, "%s/%s", path, names[i]->d_name) == -1)
				err(1, "asprintf");
			seed_load(name);
			free(name);
		}
		free(names[i]);
	}
	free(names);
}

/* One small change in place; returns the new length. */
static size_t
mutate(uint8_t *buf, size_t len, size_t room)
{
	static const uint8_t special[] = "\r\n\0 :;,/\t\xff\x7f\x80" "09afAF";
	size_t at = len > 0 ? pick(len) : 0, n;

	switch (pick(6)) {
	case 0:
		if (len > 0)
			buf[at] ^= (uint8_t)(1U << pick(8));
		break;
	case 1:
		if (len > 0)
			buf[at] = special[pick(sizeof(special) - 1)];
		break;
	case 2:		/* insert */
		if (len < room) {
			memmove(buf + at + 1, buf + at, len - at);
			buf[at] = special[pick(sizeof(special) - 1)];
			len++;
		}
		break;
	case 3:		/* remove a run */
		n = len > at ? 1 + pick(len - at) : 0;
		memmove(buf + at, buf + at + n, len - at - n);
		len -= n;
		break;
	case 4:		/* double a run */
		n = len > at ? 1 + pick(len - at) : 0;
		if (n > room - len)
			n = room - len;
		memmove(buf + at + n, buf + at, len - at);
		len += n;
		break;
	default:	/* the head of another seed, our tail */
		if (fuzz.count > 0) {
			struct input *s = &fuzz.seeds[pick(fuzz.count)];

			n = s->len < at ? s->len : at;
			if (n > 0)
				memcpy(buf, s->data, n);
		}
		break;
	}
	return len;
}

static void
run_mutations(unsigned long runs)
{
	uint8_t *buf = malloc(fuzz.max_len_bytes);

	if (buf == NULL)
		err(1, "malloc");
	for (unsigned long i = 0; i < runs; i++) {
		size_t len = 0;

		if (fuzz.count > 0) {
			struct input *s = &fuzz.seeds[pick(fuzz.count)];

			len = s->len < fuzz.max_len_bytes ? s->len : fuzz.max_len_bytes;
			if (len > 0)
				memcpy(buf, s->data, len);
		}
		for (uint64_t n = 1 + pick(8); n > 0; n--)
			len = mutate(buf, len, fuzz.max_len_bytes);
		run_one(buf, len);
	}
	free(buf);
}

int
main(int argc, char **argv)
{
	unsigned long runs = 0;

	for (int i = 1; i < argc; i++) {
		if (strncmp(argv[i], "-runs=", 6) == 0)
			runs = strtoul(argv[i] + 6, NULL, 10);
		else if (strncmp(argv[i], "-seed=", 6) == 0)
			fuzz.state = strtoull(argv[i] + 6, NULL, 10) | 1ULL << 63;
		else if (strncmp(argv[i], "-max_len=", 9) == 0)
			fuzz.max_len_bytes = strtoul(argv[i] + 9, NULL, 10);
		else if (strncmp(argv[i], "-artifact_prefix=", 17) == 0)
			fuzz.prefix = argv[i] + 17;
	}
	snprintf(artifact, sizeof(artifact), "%sinput", fuzz.prefix);
	arm();
	for (int i = 1; i < argc; i++)
		if (argv[i][0] != '-')
			seed_load(argv[i]);
	run_mutations(runs);
	printf("%zu seeds, %lu runs\n", fuzz.count, runs);
	for (size_t i = 0; i < fuzz.count; i++)
		free(fuzz.seeds[i].data);
	free(fuzz.seeds);
	return 0;
}
