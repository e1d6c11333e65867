/* SPDX-License-Identifier: Apache-2.0
 *
 * The lab's guest: it writes to its disks all the time, checks what it reads
 * back, and says on the serial port what is durable.
 *
 * guest.c is process 1: keys, hot plug, power.  disk.c is the work on one
 * disk, a process for each, with batch.c for reads and writes.  format.c is
 * what blocks look like.  A disk with a file system (ext4 or xfs) is mounted:
 * files.c works in it, and rows.c, a process of its own, in a database there.
 *
 * A disk's data area (all of the disk, or what is behind the boot partition)
 * is a row of 4 KiB blocks as lab/blocks.py has them.  The first two hold the
 * header in turn, the others data.
 *
 * Every write has a sequence number, from which its block follows; the epoch
 * is always 0, as the numbers go on from boot to boot.  A boot
 * begins with a number that no earlier boot can have used: the header has a
 * limit that is moved (and flushed) before a number beyond it is used.  A
 * block that was never written holds zeros, or sequence number 0 of another
 * disk id, if the disk was filled so (lab/blocks.py).
 *
 * In a file system every file has a sequence number, from which its slot and
 * its size in blocks follow.  It is written beside its place, flushed, renamed
 * over what the slot had, and the directory is flushed.  A slot is a file
 * FOLDER/SLOT; block n of it is block n of its row of 16.  The id is the
 * beginning of the file system's UUID, and numbers begin anew with every
 * mount, beyond those of any other, as the file "boots" counts them.  The
 * database ("rows", SQLite) is changed by numbered transactions: each adds
 * rows, whose bodies are such blocks, deletes old ones, takes from one account
 * what it adds to another, and notes how far this mount has come.
 *
 * Lines on the serial port, numbers in decimal, ids in hex, times in ms since
 * boot; the four digits behind the star are the end of the CRC-32 of what is
 * between "@" and " *":
 *
 *   @B id disk offset blocks fill boot first at *crc
 *           the disk is in use: where its area begins and how long it is (in
 *           blocks), with what it was filled (0: zeros), how often it was
 *           taken in use, the first sequence number this time
 *   @F id first seq *crc      all of first..seq is written and flushed
 *   @T id first seq *crc      transactions first..seq are committed
 *   @S id ms at writes reads *crc
 *           the longest write (with flush) of some seconds and when it began;
 *           what was written and what was read and checked since first
 *   @W id ms *crc             something is not done after ms
 *   @E id at what block... *crc
 *           an error: read, write, submit, flush (block, errno); header, for a
 *           disk that is not used (disk, reason, errno); torn, lost, old,
 *           future, foreign, misplaced, size (block or slot, sequence found,
 *           sequence wanted, 0: any); create, rename, mkdir, mount, open,
 *           umount, rows (of a file system: sequence or slot, errno);
 *           database (SQLite's number and words); module and worker: of the
 *           guest itself
 *   @Q id first seq checked *crc
 *           nothing is written any more; so many blocks were read again, or
 *           slots of a file system, which is not mounted any more
 *   @G id disk *crc           the disk was unplugged
 *   @M mode *crc              idle, normal, heavy, stop or off
 */
#include <stdint.h>

#define BLOCK 4096
#define SECTOR 512
/* Reads and writes at once. */
#define DEPTH 64
/* Blocks that hold the header in turn; data is behind them. */
#define HEADERS 2
#define DATA_MAGIC "DMCB"
#define HEADER_MAGIC "DMCH"

struct stamp {
	char magic[4];
	uint32_t owner;
	uint64_t index, epoch, seq;
};

/* Begins a header block in place of the first stamp. */
struct header {
	struct stamp stamp;	/* seq: how often it was written */
	uint64_t limit, blocks;
	uint32_t fill, boots;
};

enum mode { IDLE, NORMAL, HEAVY, STOP, OFF };

/* guest.c */

/* Set by process 1, followed by all. */
extern volatile enum mode *mode;

/* One line on the serial port. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ms since boot. */
uint64_t now(void);

void pause_ms(unsigned int ms);

/* Whether the kernel has a disk of that name. */
int present(const char *name);

/* Load the modules of a folder (empty, or with a slash at its end), which are
 * in the order in which they need each other.
 */
void load_modules(const char *folder);

/* disk.c */

/* Work on a disk until it is unplugged or the mode is OFF; the exit status. */
int work(const char *name);

/* files.c */

/* Which file system a disk has, and the id of it; NULL: none. */
const char *file_system(const char *name, uint32_t *id);

/* The same as work() in a file system, mounted until the mode is STOP. */
int keep_files(const char *name, const char *type, uint32_t id);

/* rows.c */

/* Make transactions from a sequence number on until the mode is STOP; the exit
 * status.
 */
int keep_rows(const char *path, uint32_t id, uint64_t first);

/* batch.c */

typedef void (*took_fn)(const char *block, uint64_t index);
typedef void (*stall_fn)(uint64_t ms);

/* What went wrong last; error 0: nothing. */
extern struct trouble {
	const char *what;
	uint64_t index;
	int error;
} trouble;

/* Remember what went wrong; always -1. */
int failed(const char *what, uint64_t index, int error);

/* The area of the disk begins at a byte; 0 or -1. */
int batch_open(int disk, uint64_t at);

unsigned int batch_size(void);

/* Whether a block is read or written by the batch. */
int batch_has(uint64_t index);

/* Write a block; returns where its contents have to be put. */
char *batch_write(uint64_t index);

void batch_read(uint64_t index);

/* Do the batch, which is empty then.  took gets the blocks that were read,
 * stall is called every few seconds if nothing happens.  0, or -1 and trouble.
 */
int batch_run(took_fn took, stall_fn stall);

/* format.c */

/* CRC-32 as of zlib. */
uint32_t checksum(const void *data, unsigned int size);

/* All bits of the result depend on all bits of x. */
uint64_t mix(uint64_t x);

/* The block that a sequence number is written to. */
uint64_t position(uint32_t id, uint64_t blocks, uint64_t seq);

/* Complete a block: what it begins with (a stamp and perhaps more), the stamp
 * at the begin of the other sectors, the checksum.
 */
void seal(char *block, const void *begin, unsigned int size);

/* Whether magic and checksum are right. */
int intact(const char *block, const char *magic);

int zeros(const char *block);

/* What is wrong with a block that has to be least, or a later one up to
 * sequence number latest; NULL if nothing is.
 */
const char *judge(const char *block, const struct stamp *least,
		  uint64_t latest);
