package iwarp

import (
	"encoding/binary"
	"hash/crc32"
)

// The CRC of a frame (RFC 5044, section 4.4) is CRC32c over all that precedes
// it: length, headers, payload and padding. The field is always there and is
// stored little-endian, as every implementation does; where no CRC was agreed it
// is zero and means nothing.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func addCRC(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }

func putCRC(b []byte, crc uint32) { binary.LittleEndian.PutUint32(b, crc) }

// crcMatches checks a whole frame, which ends in its CRC.
func crcMatches(frame []byte) bool {
	body := frame[:len(frame)-crcSize]
	return binary.LittleEndian.Uint32(frame[len(body):]) == addCRC(0, body)
}
