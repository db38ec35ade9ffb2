package main

// count is the number of elements of a message.
const count = 16

// letter returns element i of the message of rank 0.
func letter(i int) int32 { return 100 + int32(i) }

// none returns an element that no rank sends.
func none(int) int32 { return -1 }

// sendRecv sends 16 numbers from rank 0 to rank 1:
//
//	if (rank == 0) ncclSend(send_buf, N, ncclInt, 1, nccl_comm, stream);
//	else if (rank == 1) ncclRecv(recv_buf, N, ncclInt, 0, nccl_comm, stream);
//	cudaStreamSynchronize(stream);
//
// A communicator of one rank sends to itself, which needs a group call.
func sendRecv(c *comm) (bad int, err error) {
	if c.Size() == 1 {
		return scatter(c)
	}
	values, want := none, none
	switch c.Rank() {
	case 0:
		values, want = letter, letter
	case 1:
		want = letter
	}
	a, err := c.array(count, values)
	if err != nil {
		return 0, err
	}
	switch c.Rank() {
	case 0:
		_, err = c.Send(a.Buffer, 1)
	case 1:
		_, err = c.Recv(a.Buffer, 0)
	}
	if err != nil {
		return 0, err
	}
	return a.check(want) // waits for the stream
}
