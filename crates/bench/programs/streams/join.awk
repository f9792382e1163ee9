# An array of fields passes by, and each is looked up in another that fits the cache.
BEGIN {
    for (i = 0; i < 5000; i++) weight[i] = i * 7919 % 1000
    for (i = 0; i < 1500000; i++) keys[i] = i * 104729 % 5000
    for (turn = 0; turn < 36; turn++)
        for (i = 0; i < 1500000; i++) total += weight[keys[i]]
    print total
}
