/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs commands in a node of the lab for a client outside it.
 *
 * It is process 1 of the node once node-init has set the node up, so it also
 * reaps orphans.  One TCP connection is one command.  Both directions carry
 * frames: one byte of type, four bytes of length (big endian), the data.
 *
 *   client: A  argv, each word ended by NUL (first frame, exactly once)
 *           I  data for standard input        E  end of standard input
 *   agent:  O  standard output    R  standard error
 *           X  exit status as decimal text (128 + signal if killed); last
 *
 * When the client closes its connection first, the command's process group is
 * killed.  A daemon left behind by a command that has ended is not waited for.
 *
 * It also stirs the node's disks; see stir().
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHUNK 65536

static int peer;

static int read_all(int fd, void *buf, size_t len)
{
	char *p = buf;

	while (len) {
		ssize_t n = read(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		p += n;
		len -= n;
	}
	return 0;
}

static int write_all(int fd, const void *buf, size_t len)
{
	const char *p = buf;

	while (len) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		p += n;
		len -= n;
	}
	return 0;
}

static int send_frame(char type, const void *data, uint32_t len)
{
	char buf[5 + CHUNK];
	uint32_t n = htonl(len);

	buf[0] = type;
	memcpy(buf + 1, &n, 4);
	memcpy(buf + 5, data, len);
	return write_all(peer, buf, 5 + len);
}

static char *read_frame(char *type, uint32_t *len)
{
	char *data;

	if (read_all(peer, type, 1) || read_all(peer, len, 4))
		return NULL;
	*len = ntohl(*len);
	if (*len > (64u << 20))
		return NULL;
	data = malloc(*len + 1);
	if (!data || read_all(peer, data, *len))
		return NULL;
	data[*len] = 0;
	return data;
}

static pid_t spawn(char **argv, int in, int out, int err)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	setsid();
	dup2(in, 0);
	dup2(out, 1);
	dup2(err, 2);
	close_range(3, ~0U, 0);
	signal(SIGPIPE, SIG_DFL);
	execvp(argv[0], argv);
	dprintf(2, "%s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

/* Forward what a pipe holds; 0 = more may come, -1 = end of file. */
static int forward(int fd, char type)
{
	char buf[CHUNK];
	ssize_t n = read(fd, buf, sizeof(buf));

	if (n > 0)
		return send_frame(type, buf, n);
	return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

static void drain(int fd, char type)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	while (fd >= 0 && poll(&p, 1, 0) > 0 && !forward(fd, type))
		;
}

static void serve(void)
{
	int in[2], out[2], err[2], words = 0, status, code, pidfd, end = 0;
	char type, text[16], *data, *p, **argv, *held = NULL;
	uint32_t len, held_at = 0, held_len = 0;
	pid_t pid;

	signal(SIGCHLD, SIG_DFL);
	data = read_frame(&type, &len);
	if (!data || type != 'A' || !len)
		_exit(1);
	argv = calloc(len + 1, sizeof(*argv));
	for (p = data; p < data + len; p += strlen(p) + 1)
		argv[words++] = p;
	if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) ||
	    pipe2(err, O_CLOEXEC))
		_exit(1);
	pid = spawn(argv, in[0], out[1], err[1]);
	close(in[0]);
	close(out[1]);
	close(err[1]);
	fcntl(in[1], F_SETFL, O_NONBLOCK);
	pidfd = syscall(SYS_pidfd_open, pid, 0);
	while (!end) {
		struct pollfd fds[] = {
			{ .fd = peer, .events = held ? POLLRDHUP : POLLIN },
			{ .fd = out[0], .events = POLLIN },
			{ .fd = err[0], .events = POLLIN },
			{ .fd = pidfd, .events = POLLIN },
			{ .fd = held ? in[1] : -1, .events = POLLOUT },
		};

		if (poll(fds, 5, -1) < 0)
			continue;
		if (fds[1].revents && forward(out[0], 'O')) {
			close(out[0]);
			out[0] = -1;
		}
		if (fds[2].revents && forward(err[0], 'R')) {
			close(err[0]);
			err[0] = -1;
		}
		if (fds[4].revents) {
			ssize_t n = write(in[1], held + held_at,
					  held_len - held_at);

			if (n > 0)
				held_at += n;
			if ((n < 0 && errno != EAGAIN && errno != EINTR) ||
			    held_at == held_len) {
				free(held);
				held = NULL;
			}
		}
		if (fds[0].revents) {
			data = held ? NULL : read_frame(&type, &len);
			if (!data) {
				kill(-pid, SIGKILL);
				_exit(0);
			}
			if (type == 'I' && len) {
				held = data;
				held_at = 0;
				held_len = len;
			} else {
				close(in[1]);
				free(data);
			}
		} else if (fds[3].revents) {
			end = 1;
		}
	}
	drain(out[0], 'O');
	drain(err[0], 'R');
	waitpid(pid, &status, 0);
	code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	send_frame('X', text, snprintf(text, sizeof(text), "%d", code));
	_exit(0);
}

/* Read a sector of a disk of user-mode-linux each second.
 *
 * An interrupt that comes while another one's softirqs run overwrites the list
 * of those that still have to be served (epoll_events,
 * arch/um/os-Linux/irq.c), and each is told once (EPOLLET): the end of a read
 * or a write can be lost, and who waits for it waits until a disk ends another
 * one, which brings it along (ubd_intr, arch/um/drivers/ubd_kern.c).  A node
 * whose only work is that one would wait for ever.  Each read has a process of
 * its own, as its end can be lost as well.
 */
static void stir(void)
{
	static char sector[4096] __attribute__((aligned(4096)));
	int fd = open("/dev/ubda", O_RDONLY | O_DIRECT | O_CLOEXEC);

	if (fd < 0)
		/* This node's disks are none of user-mode-linux. */
		_exit(0);
	for (;; sleep(1))
		if (fork() == 0)
			_exit(pread(fd, sector, sizeof(sector), 0) < 0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (argc != 3 || inet_pton(AF_INET, argv[1], &addr.sin_addr) != 1) {
		fprintf(stderr, "usage: agent ADDRESS PORT\n");
		return 2;
	}
	addr.sin_port = htons(atoi(argv[2]));
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (void *)&addr, sizeof(addr)) || listen(listener, 64)) {
		perror("agent");
		return 1;
	}
	signal(SIGCHLD, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	if (fork() == 0) {
		close(listener);
		stir();
	}
	for (;;) {
		peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (peer < 0)
			continue;
		setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (fork() == 0) {
			close(listener);
			serve();
		}
		close(peer);
	}
}
