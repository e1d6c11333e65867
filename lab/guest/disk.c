/* SPDX-License-Identifier: Apache-2.0
 *
 * The work on one disk, see guest.h for what is on it and what is reported.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define MIN_BLOCKS 1024
/* What the memory suffices for: 16 GiB. */
#define MAX_BLOCKS (1U << 22)
/* By how much the limit in the header is moved. */
#define STEP 65536
#define PERIOD_MS 5000
/* The least between two reports of flushes under heavy load. */
#define REPORT_MS 100

#define U(n) ((unsigned long long)(n))

/* Writes and reads at once, such batches per flush, ms between batches. */
static const struct { unsigned int writes, reads, batches, pause; } paces[] = {
	[IDLE] = { 1, 1, 1, 1000 },
	[NORMAL] = { 4, 1, 4, 100 },
	[HEAVY] = { 32, 8, 4, 0 },
};

static int fd;
static const char *name;
static uint64_t offset;		/* of the data area, in bytes */
static struct header head;
/* Sequence numbers; issued: the highest that next ever was. */
static uint64_t first, next, issued, flushed;
static uint32_t *last;		/* by block: sequence + 1 - first; 0: unknown */
static uint64_t reads, slowest, slowest_at, period, reported;
static unsigned int batches;	/* since the last flush */
static int strange;		/* block 0 is of no use; normal in a crash */
static char noise[BLOCK];	/* what blocks hold behind their stamps */
static uint64_t dice_state;

static uint64_t dice(void)
{
	return mix(dice_state += 0x9e3779b97f4a7c15);
}

static uint64_t where(uint64_t seq)
{
	return position(head.stamp.owner, head.blocks, seq);
}

/* What is wrong with a block; NULL if nothing is.  wanted is a sequence
 * number, or 0 if it was not written since boot.
 *
 * A later one is no fault of the disk, as all up to "issued" were written:
 * this memory has forgotten it. QEMU without KVM can lose what a guest stores
 * while it is live-migrated (the race between TCG and the dirty bitmap that
 * QEMU's commit 9458a9a1df1a narrows).
 */
static const char *wrong_with(const char *block, uint64_t index,
			      uint64_t wanted)
{
	struct stamp least = { DATA_MAGIC, head.stamp.owner, index, 0, wanted };
	struct stamp filled = { DATA_MAGIC, head.fill, index, 0, 0 };
	const struct stamp *stamp = (const void *)block;
	const char *wrong = judge(block, &least, issued - 1);

	if (head.fill ? !judge(block, &filled, 0) : zeros(block))
		return wanted ? "lost" : NULL;
	return wrong || where(stamp->seq) == index ? wrong : "misplaced";
}

static void check(const char *block, uint64_t index)
{
	const struct stamp *stamp = (const void *)block;
	uint64_t wanted = last[index] ? last[index] + first - 1 : 0;
	const char *wrong = wrong_with(block, index, wanted);

	reads++;
	if (wrong)
		say("E %08x %llu %s %llu %llu %llu", head.stamp.owner, U(now()),
		    wrong, U(index), U(stamp->seq), U(wanted));
}

static void stalled(uint64_t ms)
{
	say("W %08x %llu", head.stamp.owner, U(ms));
}

static int flush(void)
{
	if (fdatasync(fd))
		return failed("flush", 0, errno);
	batches = 0;
	flushed = next - 1;
	return 0;
}

static void report_flushed(void)
{
	if (flushed < first)
		return;
	say("F %08x %llu %llu", head.stamp.owner, U(first), U(flushed));
	reported = now();
}

/* Reserve sequence numbers up to limit (inclusive). */
static int write_header(uint64_t limit)
{
	struct header new = head;
	char *block;

	new.stamp.seq++;
	new.stamp.index = new.stamp.seq % HEADERS;
	new.limit = limit;
	block = batch_write(new.stamp.index);
	memcpy(block, noise, BLOCK);
	seal(block, &new, sizeof(new));
	if (batch_run(NULL, stalled))
		return -1;
	if (fdatasync(fd))
		return failed("flush", 0, errno);
	head = new;
	return 0;
}

static void leave_if_unplugged(void)
{
	if (present(name))
		return;
	say("G %08x %s", head.stamp.owner, name);
	_exit(0);
}

/* All that is not flushed is done again: nobody knows what became of it. */
static void begin_again(void)
{
	for (uint64_t seq = flushed + 1; seq < next; seq++)
		last[where(seq)] = 0;
	next = flushed + 1;
	batches = 0;
	/* Long enough for the kernel to say that the disk was unplugged. */
	pause_ms(1000);
	leave_if_unplugged();
	say("E %08x %llu %s %llu %d", head.stamp.owner, U(now()), trouble.what,
	    U(trouble.index), trouble.error);
}

static void queue_write(uint64_t seq)
{
	uint64_t index = where(seq);
	struct stamp stamp = { DATA_MAGIC, head.stamp.owner, index, 0, seq };
	char *block = batch_write(index);

	memcpy(block, noise, BLOCK);
	seal(block, &stamp, sizeof(stamp));
	last[index] = seq + 1 - first;
}

static int write_batch(enum mode pace)
{
	uint64_t index, end = next + paces[pace].writes;

	if (end > head.limit + 1 && write_header(end + STEP))
		return -1;
	while (next < end && !batch_has(where(next)))
		queue_write(next++);
	if (issued < next)
		issued = next;
	for (unsigned int i = 0; i < paces[pace].reads; i++) {
		index = dice() & 1 ? where(first + dice() % (next - first))
			: HEADERS + dice() % (head.blocks - HEADERS);
		if (!batch_has(index))
			batch_read(index);
	}
	if (batch_run(check, stalled))
		return -1;
	if (++batches < paces[pace].batches)
		return 0;
	if (flush())
		return -1;
	if (pace != HEAVY || now() - reported >= REPORT_MS)
		report_flushed();
	return 0;
}

static void cycle(enum mode pace)
{
	uint64_t start = now(), took;

	if (write_batch(pace))
		begin_again();
	took = now() - start;
	if (took >= slowest) {
		slowest = took;
		slowest_at = start;
	}
	if (now() - period >= PERIOD_MS) {
		say("S %08x %llu %llu %llu %llu", head.stamp.owner, U(slowest),
		    U(slowest_at), U(next - first), U(reads));
		period = now();
		slowest = 0;
	}
}

/* Read again all that was written since boot; how many blocks. */
static uint64_t read_all(void)
{
	uint64_t before = reads;

	for (uint64_t index = HEADERS; index < head.blocks; index++) {
		if (last[index])
			batch_read(index);
		if ((batch_size() == DEPTH || index == head.blocks - 1) &&
		    batch_run(check, stalled))
			begin_again();
	}
	return reads - before;
}

static void finish(int thorough)
{
	uint64_t checked;

	while (flush())
		begin_again();
	report_flushed();
	checked = thorough ? read_all() : 0;
	say("Q %08x %llu %llu %llu", head.stamp.owner, U(first), U(flushed),
	    U(checked));
}

/* Takes the newer one of the header blocks, or what fills the disk. */
static void take_header(const char *block, uint64_t index)
{
	const struct header *found = (const void *)block;

	if (intact(block, HEADER_MAGIC)) {
		if (found->stamp.seq > head.stamp.seq)
			head = *found;
	} else if (!index && intact(block, DATA_MAGIC) && !found->stamp.seq) {
		head.fill = found->stamp.owner;
	} else if (!index) {
		strange = !zeros(block);
	}
}

/* Make a header, or take in use the one there is; what is wrong, or NULL. */
static const char *open_header(uint64_t blocks)
{
	/* The first header goes to block 1, so block 0 tells what was there. */
	batch_read(0);
	batch_read(1);
	if (batch_run(take_header, stalled))
		return trouble.what;
	if (!head.stamp.seq) {
		if (strange)
			return "contents";
		memcpy(head.stamp.magic, HEADER_MAGIC, 4);
		head.stamp.owner = dice() | 1;
		head.blocks = blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS;
	}
	if (head.blocks > blocks || head.blocks < MIN_BLOCKS)
		return "size";
	first = next = issued = head.limit + 1;
	flushed = head.limit;
	head.boots++;
	return write_header(head.limit + STEP) ? trouble.what : NULL;
}

static const char *open_disk(void)
{
	struct { uint32_t start, size; } partition;
	char path[32], *sector;
	uint64_t size;

	snprintf(path, sizeof(path), "/dev/%s", name);
	fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
	sector = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (fd < 0 || ioctl(fd, BLKGETSIZE64, &size) ||
	    pread(fd, sector, BLOCK, 0) != BLOCK)
		return "open";
	/* The disk signature of a boot disk, whose one partition is first. */
	if (!memcmp(sector + 440, "DMGD", 4)) {
		memcpy(&partition, sector + 446 + 8, sizeof(partition));
		offset = (partition.start + partition.size) * (uint64_t)SECTOR;
	}
	if (batch_open(fd, offset))
		return "memory";
	return open_header((size - offset) / BLOCK);
}

static void roll_dice(void)
{
	struct timespec time;

	/* Early in a boot there may be no better random numbers. */
	getrandom(noise, BLOCK, GRND_INSECURE);
	clock_gettime(CLOCK_REALTIME, &time);
	memcpy(noise, &time, sizeof(time));
	dice_state = mix(time.tv_sec * 1000000000ULL + time.tv_nsec) ^
		(uint64_t)checksum(noise, BLOCK) << 16;
}

int work(const char *disk)
{
	const char *wrong;
	enum mode wanted;
	int finished = 0;

	name = disk;
	roll_dice();
	wrong = open_disk();
	if (wrong) {
		say("E %08x %llu header %s %s %d", head.stamp.owner, U(now()),
		    name, wrong, trouble.error);
		return 1;
	}
	last = mmap(NULL, head.blocks * sizeof(*last), PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	say("B %08x %s %llu %llu %08x %u %llu %llu", head.stamp.owner, name,
	    U(offset / BLOCK), U(head.blocks), head.fill, head.boots,
	    U(first), U(now()));
	period = now();
	for (;;) {
		wanted = *mode;
		if (wanted < STOP) {
			cycle(wanted);
			pause_ms(paces[wanted].pause);
			finished = 0;
		} else if (!finished || wanted == OFF) {
			finish(wanted == STOP);
			finished = 1;
			if (wanted == OFF)
				return 0;
		} else {
			pause_ms(100);
			leave_if_unplugged();
		}
	}
}
