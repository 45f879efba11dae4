// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/types.h>

/// The functions that this library stands in front of.
///
/// Until its constructor has run (allocators and sanitizers call open() and mmap() earlier), and
/// where the kernel's call does exactly what is wanted, these are raw system calls; afterwards
/// calls go on to whoever is next in the link chain, which keeps cancellation points and other
/// preloaded libraries working.
namespace softhca::shim::preload::next {

int openat(int folder, const char* path, int flags, mode_t mode);
int close(int fd);
ssize_t write(int fd, const void* data, std::size_t length);
int ioctl(int fd, unsigned long request, void* argument);
void* mmap(void* address, std::size_t length, int protection, int flags, int fd, off_t offset);
int socket(int domain, int type, int protocol);

FILE* fopen(const char* path, const char* mode);
DIR* opendir(const char* path);
using Filter = int (*)(const dirent*);
using Compare = int (*)(const dirent**, const dirent**);
int scandir(const char* path, dirent*** names, Filter filter, Compare compare);
char* realpath(const char* path, char* resolved);
void* realloc(void* block, std::size_t size);
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*routine)(void*),
                   void* argument);

}  // namespace softhca::shim::preload::next
