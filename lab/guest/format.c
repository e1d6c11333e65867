/* SPDX-License-Identifier: Apache-2.0
 *
 * What blocks look like and what may be wrong with them (lab/blocks.py), and
 * where they are (verify.py).
 */
#include "guest.h"

#include <string.h>

#define CRC_AT (BLOCK - 4)
#define CLUSTERS 64
#define CLUSTER 16

static uint32_t crc_table[256];

static void crc_init(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;

		for (int bit = 0; bit < 8; bit++)
			c = c & 1 ? c >> 1 ^ 0xedb88320 : c >> 1;
		crc_table[i] = c;
	}
}

uint32_t checksum(const void *data, unsigned int size)
{
	const uint8_t *p = data;
	uint32_t c = ~0U;

	if (!crc_table[1])
		crc_init();
	while (size--)
		c = c >> 8 ^ crc_table[(c ^ *p++) & 255];
	return ~c;
}

uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

/* Half of them are anywhere, half of them in some clusters, which are so
 * written often and side by side.
 */
uint64_t position(uint32_t id, uint64_t blocks, uint64_t seq)
{
	uint64_t key = mix(id), x = mix(key + seq), where = x >> 1;

	if (x & 1)
		where = (mix(key ^ (x >> 1) % CLUSTERS) >> 1) +
			(x >> 32) % CLUSTER;
	return HEADERS + where % (blocks - HEADERS);
}

void seal(char *block, const void *begin, unsigned int size)
{
	uint32_t crc;

	for (int at = 0; at < BLOCK; at += SECTOR)
		memcpy(block + at, begin, sizeof(struct stamp));
	memcpy(block, begin, size);
	crc = checksum(block, CRC_AT);
	memcpy(block + CRC_AT, &crc, sizeof(crc));
}

int intact(const char *block, const char *magic)
{
	uint32_t crc = checksum(block, CRC_AT);

	return !memcmp(block, magic, 4) &&
		!memcmp(block + CRC_AT, &crc, sizeof(crc));
}

int zeros(const char *block)
{
	return !*block && !memcmp(block, block + 1, BLOCK - 1);
}

const char *judge(const char *block, const struct stamp *least,
		  uint64_t latest)
{
	const struct stamp *stamp = (const void *)block;

	if (!intact(block, DATA_MAGIC))
		return zeros(block) ? "lost" : "torn";
	if (stamp->index != least->index)
		return "misplaced";
	if (stamp->owner != least->owner)
		return "foreign";
	if (stamp->epoch != least->epoch || stamp->seq > latest)
		return "future";
	return stamp->seq < least->seq ? "old" : NULL;
}
