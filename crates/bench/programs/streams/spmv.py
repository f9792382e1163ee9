# The product of a sparse matrix, which passes by, and a vector that fits the cache, as solvers do it.
import numpy
from scipy import sparse

random = numpy.random.RandomState(2)
size, entries = 150000, 8 << 20
places = [random.randint(0, size, entries) for _ in range(2)]
matrix = sparse.csr_matrix((random.rand(entries), places), shape=(size, size))
vector = numpy.ones(size)
for turn in range(600):
    vector = matrix @ vector
    vector /= vector.max()
print("%.12g" % vector.sum())
