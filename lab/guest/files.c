/* SPDX-License-Identifier: Apache-2.0
 *
 * The work on one disk with a file system, see guest.h for what is in it and
 * what is reported.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOTS 1024
#define FOLDERS 32
/* Blocks of a file. */
#define MOST 16
/* Sequence numbers of a boot. */
#define BOOT_SHIFT 32

#define U(n) ((unsigned long long)(n))

/* ms between files. */
static const unsigned int pauses[] = {
	[IDLE] = 1000, [NORMAL] = 100, [HEAVY] = 0,
};

static const char *name, *type;
static uint32_t id;
static char place[32];		/* where it is mounted */
static int root;		/* that directory */
static uint64_t first, next;	/* sequence numbers */
static uint64_t last[SLOTS];	/* by slot; 0: not in this boot */
static uint64_t dice;
static char *buffer;		/* of MOST blocks, aligned */

static uint64_t key(uint64_t seq)
{
	return mix(mix(id) + seq);
}

static unsigned int slot_of(uint64_t seq)
{
	return key(seq) % SLOTS;
}

static unsigned int blocks_of(uint64_t seq)
{
	return 1 + (key(seq) >> 32) % MOST;
}

const char *file_system(const char *disk, uint32_t *owner)
{
	unsigned char begin[BLOCK], *uuid;
	const char *found;
	char path[32];
	int file;

	snprintf(path, sizeof(path), "/dev/%s", disk);
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return NULL;
	memset(begin, 0, BLOCK);
	if (read(file, begin, BLOCK) == BLOCK && !memcmp(begin, "XFSB", 4)) {
		found = "xfs";
		uuid = begin + 32;
	} else if (begin[1024 + 56] == 0x53 && begin[1024 + 57] == 0xef) {
		found = "ext4";
		uuid = begin + 1024 + 104;
	} else {
		found = NULL;
		uuid = begin;
	}
	close(file);
	*owner = (uint32_t)uuid[0] << 24 | uuid[1] << 16 | uuid[2] << 8 |
		uuid[3];
	return found;
}

static void complain(void)
{
	say("E %08x %llu %s %llu %d", id, U(now()), trouble.what,
	    U(trouble.index), trouble.error);
}

static int sync_folder(const char *path)
{
	int folder = openat(root, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int result = folder < 0 ? -1 : fsync(folder);

	if (folder >= 0)
		close(folder);
	return result;
}

/* Put a durable file in the place of another one, or of none. */
static int put(const char *folder, const char *path, const char *data,
	       unsigned int size, uint64_t seq)
{
	int file = openat(root, "new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
			  0644);
	ssize_t n;

	if (file < 0)
		return failed("create", seq, errno);
	for (unsigned int at = 0; at < size; at += n) {
		n = write(file, data + at, size - at);
		if (n <= 0) {
			failed("write", seq, n ? errno : EIO);
			close(file);
			return -1;
		}
	}
	if (fsync(file)) {
		failed("flush", seq, errno);
		close(file);
		return -1;
	}
	close(file);
	if (renameat(root, "new", root, path) || sync_folder(folder))
		return failed("rename", seq, errno);
	return 0;
}

static void path_of(unsigned int slot, char *path)
{
	sprintf(path, "%02u/%04u", slot % FOLDERS, slot);
}

static int write_file(uint64_t seq)
{
	unsigned int slot = slot_of(seq), blocks = blocks_of(seq);
	char path[16], folder[4];

	for (unsigned int i = 0; i < blocks; i++) {
		struct stamp stamp = { DATA_MAGIC, id, slot * MOST + i, 0, seq };

		seal(buffer + i * BLOCK, &stamp, sizeof(stamp));
	}
	path_of(slot, path);
	snprintf(folder, sizeof(folder), "%02u", slot % FOLDERS);
	if (put(folder, path, buffer, blocks * BLOCK, seq))
		return -1;
	last[slot] = seq;
	return 0;
}

/* What is wrong with a file, whose size is known; NULL if nothing is. */
static const char *wrong_with(unsigned int slot, ssize_t size, uint64_t *seq)
{
	const struct stamp *stamp = (const void *)buffer;
	const char *wrong;

	*seq = size ? stamp->seq : 0;
	for (unsigned int i = 0; i * BLOCK < size; i++) {
		struct stamp least = { DATA_MAGIC, id, slot * MOST + i, 0,
				       i ? *seq : last[slot] };

		wrong = judge(buffer + i * BLOCK, &least, i ? *seq : next - 1);
		if (wrong)
			return wrong;
	}
	return size == blocks_of(*seq) * BLOCK ? NULL : "size";
}

/* Read a file from the disk; a later one than is wanted is no fault of it. */
static int read_file(unsigned int slot)
{
	uint64_t seq = 0;
	const char *wrong = "lost";
	char path[16];
	ssize_t size;
	int file;

	path_of(slot, path);
	file = openat(root, path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (file < 0 && errno != ENOENT)
		return failed("open", slot, errno);
	if (file >= 0) {
		size = read(file, buffer, MOST * BLOCK);
		close(file);
		if (size < 0)
			return failed("read", slot, errno);
		wrong = wrong_with(slot, size, &seq);
	} else if (!last[slot]) {
		wrong = NULL;
	}
	if (wrong)
		say("E %08x %llu %s %u %llu %llu", id, U(now()), wrong, slot,
		    U(seq), U(last[slot]));
	return 0;
}

/* A number of its own for each time that it is mounted. */
static int count_boots(uint64_t *boots)
{
	char text[24] = "";
	int file = openat(root, "boots", O_RDONLY | O_CLOEXEC);

	if (file >= 0) {
		if (read(file, text, sizeof(text) - 1) < 0)
			failed("read", 0, errno);
		close(file);
	}
	*boots = strtoull(text, NULL, 10) + 1;
	snprintf(text, sizeof(text), "%llu\n", U(*boots));
	return put(".", "boots", text, strlen(text), 0);
}

static int begin(void)
{
	char path[40], folder[4];
	uint64_t boots;

	snprintf(place, sizeof(place), "/%s", name);
	snprintf(path, sizeof(path), "/dev/%s", name);
	mkdir(place, 0755);
	if (mount(path, place, type, 0, NULL))
		return failed("mount", 0, errno);
	root = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return failed("open", 0, errno);
	for (int i = 0; i < FOLDERS; i++) {
		snprintf(folder, sizeof(folder), "%02d", i);
		if (mkdirat(root, folder, 0755) && errno != EEXIST)
			return failed("mkdir", i, errno);
	}
	if (count_boots(&boots))
		return -1;
	first = next = boots << BOOT_SHIFT;
	memset(last, 0, sizeof(last));
	say("B %08x %s 0 %u %08x %llu %llu %llu", id, name, SLOTS, 0,
	    U(boots), U(first), U(now()));
	return 0;
}

static int work_on(void)
{
	while (*mode < STOP) {
		/* One that was begun is not begun again. */
		next++;
		if (write_file(next - 1))
			return -1;
		say("F %08x %llu %llu", id, U(first), U(next - 1));
		dice = mix(dice + 1);
		if (read_file(dice % SLOTS))
			return -1;
		pause_ms(pauses[*mode < STOP ? *mode : HEAVY]);
	}
	return 0;
}

static int read_all(void)
{
	for (unsigned int slot = 0; slot < SLOTS; slot++)
		if (read_file(slot))
			return -1;
	return 0;
}

/* From mount to unmount; 0 or -1. */
static int use(void)
{
	int status, result;
	char path[40];
	pid_t rows;

	if (begin())
		return -1;
	snprintf(path, sizeof(path), "%s/rows", place);
	rows = fork();
	if (rows == 0)
		_exit(keep_rows(path, id, first));
	result = work_on();
	if (waitpid(rows, &status, 0) != rows || status)
		result = failed("rows", 0, ECHILD);
	if (!result && *mode == STOP)
		result = read_all();
	close(root);
	if (umount(place))
		return failed("umount", 0, errno);
	if (!result)
		say("Q %08x %llu %llu %u", id, U(first), U(next - 1), SLOTS);
	return result;
}

int keep_files(const char *disk, const char *kind, uint32_t owner)
{
	name = disk;
	type = kind;
	id = owner;
	dice = mix(id);
	load_modules("files/");
	buffer = mmap(NULL, MOST * BLOCK, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	while (*mode != OFF) {
		if (*mode < STOP && use()) {
			complain();
			return 1;
		}
		pause_ms(100);
	}
	return 0;
}
