# Numbers of a large array pass by, and each is looked up in a dictionary.
from array import array

weight = {key: key * 7919 % 1000 for key in range(8000)}
keys = array("i", ((at * 104729) % 8000 for at in range(4 << 20))) * 4
total = 0
for turn in range(5):
    for key in keys:
        total += weight[key]
print(total)
