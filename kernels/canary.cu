// canary.cu -- writes a canary into the memory of each guarded image, before it is decoded.
//
//   pictures  Picture  (count,)
//   nonce     unsigned          a new number for each batch; resample.cu gets the same
//
// One thread writes one of an image's three places. Launch: grid (ceil(3 * count / 128)), block (128).

#include "canary.cuh"

extern "C" __global__ void __launch_bounds__(128) canary(const Picture* __restrict__ pictures, int count, unsigned nonce) {
    int image = (int)(blockIdx.x * blockDim.x + threadIdx.x) / CANARY_PLACES;
    int place = (int)(blockIdx.x * blockDim.x + threadIdx.x) % CANARY_PLACES;
    if (image >= count) return;
    Picture picture = pictures[image];
    if (!picture.is_guarded) return;
    int size = canary_size(picture);
    unsigned char* bytes = canary_place(picture, place);
    for (int i = 0; i < size; i++) bytes[i] = canary_byte(nonce, (unsigned long long)(bytes + i));
}
