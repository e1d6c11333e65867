/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes of single blocks of one disk, many at once.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STALL_S 5

static int fd;
static uint64_t offset;
static aio_context_t aio;
static struct iocb ops[DEPTH];
static uint64_t indexes[DEPTH];
static unsigned int count;
static char *buffers;

struct trouble trouble;

int failed(const char *what, uint64_t index, int error)
{
	trouble = (struct trouble){ what, index, error };
	return -1;
}

int batch_open(int disk, uint64_t at)
{
	fd = disk;
	offset = at;
	buffers = mmap(NULL, DEPTH * BLOCK, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return buffers == MAP_FAILED ||
		syscall(SYS_io_setup, DEPTH, &aio) ? -1 : 0;
}

unsigned int batch_size(void)
{
	return count;
}

int batch_has(uint64_t index)
{
	for (unsigned int i = 0; i < count; i++)
		if (indexes[i] == index)
			return 1;
	return 0;
}

static char *add(int opcode, uint64_t index)
{
	char *buffer = buffers + count * BLOCK;

	indexes[count] = index;
	ops[count] = (struct iocb){
		.aio_data = count, .aio_fildes = fd, .aio_lio_opcode = opcode,
		.aio_buf = (uintptr_t)buffer, .aio_nbytes = BLOCK,
		.aio_offset = offset + index * BLOCK,
	};
	count++;
	return buffer;
}

char *batch_write(uint64_t index)
{
	return add(IOCB_CMD_PWRITE, index);
}

void batch_read(uint64_t index)
{
	add(IOCB_CMD_PREAD, index);
}

static void finished(const struct io_event *event, took_fn took)
{
	int writing = ops[event->data].aio_lio_opcode == IOCB_CMD_PWRITE;

	if (event->res != BLOCK)
		failed(writing ? "write" : "read", indexes[event->data],
		       event->res < 0 ? -event->res : EIO);
	else if (!writing)
		took(buffers + event->data * BLOCK, indexes[event->data]);
}

int batch_run(took_fn took, stall_fn stall)
{
	struct timespec limit = { STALL_S, 0 };
	struct io_event events[DEPTH];
	struct iocb *list[DEPTH];
	unsigned int sent = 0, done = 0;
	uint64_t start = now();
	long n;

	trouble.error = 0;
	for (unsigned int i = 0; i < count; i++)
		list[i] = &ops[i];
	while (done < count) {
		n = sent < count ? syscall(SYS_io_submit, aio, count - sent,
					   list + sent) : 0;
		if (n < 0 && sent == done) {
			failed("submit", indexes[sent], errno);
			break;
		}
		sent += n > 0 ? n : 0;
		n = syscall(SYS_io_getevents, aio, 1, DEPTH, events, &limit);
		if (n == 0)
			stall(now() - start);
		for (long i = 0; i < n; i++)
			finished(&events[i], took);
		done += n > 0 ? n : 0;
	}
	count = 0;
	return trouble.error ? -1 : 0;
}
