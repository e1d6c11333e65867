/* SPDX-License-Identifier: Apache-2.0
 *
 * Process 1 of the lab's guest, see guest.h.
 *
 * Commands are letters, on the keyboard or on the serial port: [i]dle,
 * [n]ormal, [h]eavy, [q]uit (stop writing, read all again).  The power button
 * stops writing and switches off, Ctrl-Alt-Delete reboots at once.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/input.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define DISKS 26
#define INPUTS 16
#define LOOK_MS 250

volatile enum mode *mode;

static const char *const names[] = { "idle", "normal", "heavy", "stop", "off" };
static int serial;
static struct pollfd inputs[1 + INPUTS];
static struct { pid_t pid; int failed; } workers[DISKS];

void say(const char *format, ...)
{
	char line[256] = "@";
	va_list args;
	int size;

	va_start(args, format);
	size = 1 + vsnprintf(line + 1, 200, format, args);
	va_end(args);
	size += sprintf(line + size, " *%04x\n",
			checksum(line + 1, size - 1) & 0xffff);
	/* In one piece: then lines of different processes do not mix. */
	if (write(serial, line, size) < 0)
		return;
}

uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec * 1000ULL + t.tv_nsec / 1000000;
}

void pause_ms(unsigned int ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000L };

	nanosleep(&t, NULL);
}

int present(const char *name)
{
	char path[32];

	snprintf(path, sizeof(path), "/sys/block/%s", name);
	return access(path, F_OK) == 0;
}

void load_modules(const char *folder)
{
	char path[32];
	int fd;

	for (int i = 0;; i++) {
		snprintf(path, sizeof(path), "/modules/%s%02d.ko", folder, i);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return;
		/* Another process may have loaded it. */
		if (syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST)
			say("E 00000000 %llu module %s %m",
			    (unsigned long long)now(), path);
		close(fd);
	}
}

static void open_serial(void)
{
	struct termios raw;

	serial = open("/dev/ttyS0", O_RDWR | O_NOCTTY | O_CLOEXEC);
	tcgetattr(serial, &raw);
	cfmakeraw(&raw);
	raw.c_cflag |= CLOCAL;
	tcsetattr(serial, TCSANOW, &raw);
	inputs[0] = (struct pollfd){ .fd = serial, .events = POLLIN };
	for (int i = 1; i <= INPUTS; i++)
		inputs[i].fd = -1;
}

static void set_mode(enum mode wanted)
{
	if (*mode == OFF)
		return;
	*mode = wanted;
	say("M %s", names[wanted]);
}

static void take_input(struct pollfd *from)
{
	struct input_event event;
	char letter = 0;

	if (from->fd == serial) {
		if (read(serial, &letter, 1) != 1)
			return;
	} else if (read(from->fd, &event, sizeof(event)) != sizeof(event)) {
		close(from->fd);
		from->fd = -1;
	} else if (event.type == EV_KEY && event.value == 1) {
		letter = event.code == KEY_I ? 'i' : event.code == KEY_N ? 'n'
			: event.code == KEY_H ? 'h' : event.code == KEY_Q ? 'q'
			: event.code == KEY_POWER ? 'p' : 0;
	}
	switch (letter) {
	case 'i': set_mode(IDLE); break;
	case 'n': set_mode(NORMAL); break;
	case 'h': set_mode(HEAVY); break;
	case 'q': set_mode(STOP); break;
	case 'p': set_mode(OFF); break;
	}
}

static void look_for_inputs(void)
{
	char path[32];

	for (int i = 1; i <= INPUTS; i++) {
		if (inputs[i].fd >= 0)
			continue;
		snprintf(path, sizeof(path), "/dev/input/event%d", i - 1);
		inputs[i].fd = open(path, O_RDONLY | O_CLOEXEC);
		inputs[i].events = POLLIN;
	}
}

static int keep(const char *name)
{
	uint32_t id;
	const char *type = file_system(name, &id);

	return type ? keep_files(name, type, id) : work(name);
}

static void look_for_disks(void)
{
	for (int i = 0; i < DISKS; i++) {
		char name[] = { 'v', 'd', 'a' + i, 0 };

		if (!present(name)) {
			workers[i].failed = 0;
		} else if (!workers[i].pid && !workers[i].failed &&
			   *mode != OFF) {
			workers[i].pid = fork();
			if (workers[i].pid == 0)
				_exit(keep(name));
		}
	}
}

/* Returns how many workers are left. */
static int reap(void)
{
	int status, left = 0;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (int i = 0; i < DISKS; i++) {
			if (workers[i].pid != pid)
				continue;
			workers[i].pid = 0;
			workers[i].failed = status != 0;
			if (WIFSIGNALED(status))
				say("E 00000000 %llu worker vd%c %d",
				    (unsigned long long)now(), 'a' + i,
				    WTERMSIG(status));
		}
	for (int i = 0; i < DISKS; i++)
		left += workers[i].pid > 0;
	return left;
}

int main(void)
{
	mkdir("/sys", 0755);
	mount("dev", "/dev", "devtmpfs", 0, NULL);
	mount("sys", "/sys", "sysfs", 0, NULL);
	open_serial();
	load_modules("");
	mode = mmap(NULL, sizeof(*mode), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	set_mode(NORMAL);
	for (;;) {
		look_for_disks();
		look_for_inputs();
		poll(inputs, 1 + INPUTS, LOOK_MS);
		for (int i = 0; i <= INPUTS; i++)
			if (inputs[i].fd >= 0 && inputs[i].revents)
				take_input(&inputs[i]);
		if (!reap() && *mode == OFF)
			reboot(RB_POWER_OFF);
	}
}
